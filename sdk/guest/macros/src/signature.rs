//! What an entry's signature says: its parameters as owned types, and the shape of its result.

use proc_macro2::Span;
use quote::format_ident;
use syn::{
    Error, FnArg, GenericArgument, Ident, Pat, PathArguments, PathSegment, Result, ReturnType, Signature,
    Type, TypeReference, parse_quote, spanned::Spanned,
};

/// A parameter that is decoded from arguments.
pub struct Parameter {
    pub name: Ident,
    /// The owned type to decode; for [`Parameter::rest`], of each argument.
    pub ty: Type,
    /// Whether the function takes a reference to it.
    pub borrowed: bool,
    /// Whether it is an `Inputs<T>`, which takes every further argument.
    pub rest: bool,
}

/// What the function returns.
pub struct Output {
    /// Whether it is a `Result`.
    pub fallible: bool,
    /// Whether it is a `Future<T>`: the result of another task.
    pub forward: bool,
    /// What the caller gets: `T` of `Result<T>`, of `Future<T>`, of both.
    pub ty: Type,
}

/// Refuses what cannot be an entry.
pub fn check(signature: &Signature) -> Result<()> {
    let refuse = |span: Span, what: &str| Err(Error::new(span, format!("an entry cannot be {what}")));
    if let Some(token) = &signature.asyncness {
        return refuse(token.span(), "async: host calls block");
    }
    if !signature.generics.params.is_empty() {
        return refuse(signature.generics.span(), "generic: its arguments must have one encoding");
    }
    if let Some(token) = &signature.unsafety {
        return refuse(token.span(), "unsafe");
    }
    match signature.inputs.first() {
        Some(FnArg::Receiver(receiver)) => refuse(receiver.span(), "a method"),
        _ => Ok(()),
    }
}

/// The decoded parameters, after the first `skipped`.
pub fn parameters(signature: &Signature, skipped: usize) -> Result<Vec<Parameter>> {
    let count = signature.inputs.len();
    let inputs = signature.inputs.iter().enumerate().skip(skipped);
    inputs.map(|(position, input)| parameter(input, position, position + 1 == count)).collect()
}

fn parameter(input: &FnArg, position: usize, last: bool) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new(input.span(), "an entry cannot be a method"));
    };
    let name = match &*typed.pat {
        Pat::Ident(pattern) => pattern.ident.clone(),
        _ => format_ident!("argument{position}"),
    };
    let (ty, borrowed) = match &*typed.ty {
        Type::Reference(reference) => (owned(reference)?, true),
        ty => (ty.clone(), false),
    };
    let Some(inner) = argument_of(&ty, "Inputs") else {
        return Ok(Parameter { name, ty, borrowed, rest: false });
    };
    if !last {
        return Err(Error::new(
            ty.span(),
            "`Inputs` takes all further arguments: make it the last parameter",
        ));
    }
    Ok(Parameter { name, ty: inner, borrowed, rest: true })
}

/// The type to decode where a function takes a reference.
fn owned(reference: &TypeReference) -> Result<Type> {
    if let Some(token) = &reference.mutability {
        return Err(Error::new(token.span(), "an argument cannot be `&mut`: nobody would see the change"));
    }
    Ok(match &*reference.elem {
        Type::Slice(slice) => {
            let element = &slice.elem;
            parse_quote!(::std::vec::Vec<#element>)
        }
        Type::Path(path) if path.path.is_ident("str") => parse_quote!(::std::string::String),
        ty => ty.clone(),
    })
}

/// The shape of the result.
pub fn output(signature: &Signature) -> Output {
    let ty = match &signature.output {
        ReturnType::Default => parse_quote!(()),
        ReturnType::Type(_, ty) => (**ty).clone(),
    };
    let inner = argument_of(&ty, "Result");
    let fallible = inner.is_some();
    let ty = inner.unwrap_or(ty);
    match argument_of(&ty, "Future") {
        Some(ty) => Output { fallible, forward: true, ty },
        None => Output { fallible, forward: false, ty },
    }
}

/// `T` of a generator's first parameter, `&mut Yielder<T>`.
pub fn yielded(signature: &Signature) -> Result<Type> {
    let first = signature.inputs.first();
    let found = first.and_then(|input| match input {
        FnArg::Typed(typed) => match &*typed.ty {
            Type::Reference(TypeReference { mutability: Some(_), elem, .. }) => argument_of(elem, "Yielder"),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    });
    found.ok_or_else(|| {
        Error::new(signature.ident.span(), "a generator's first parameter is a `&mut Yielder<T>`")
    })
}

/// `T` if `ty` is a path that ends in `name<T, …>`.
fn argument_of(ty: &Type, name: &str) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let PathSegment { ident, arguments } = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = arguments else { return None };
    if ident != name {
        return None;
    }
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    })
}
