//! What the attributes expand to.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Ident, ItemFn, LitStr, Path, Result, Type};

use crate::signature::{self, Output, Parameter};

/// Which attribute it was.
pub enum Role {
    /// The main entry, and the component's further entries.
    Main(Vec<Path>),
    /// A task.
    Task,
    /// A generator.
    Generator,
}

/// The function, and what is added to it.
pub fn expand(function: &ItemFn, role: &Role) -> Result<TokenStream> {
    let signature = &function.sig;
    signature::check(signature)?;
    let skipped = usize::from(matches!(role, Role::Generator));
    let parameters = signature::parameters(signature, skipped)?;
    let output = signature::output(signature);
    let name = &signature.ident;
    let visibility = &function.vis;
    let companion = match role {
        Role::Main(_) => TokenStream::new(),
        Role::Task => companion(function, &parameters, &output.ty),
        Role::Generator => {
            let item = signature::yielded(signature)?;
            companion(function, &parameters, &syn::parse_quote!(::fanfold::Generator<#item>))
        }
    };
    let entry = entry(name, role, &parameters, &output)?;
    let handler = match role {
        Role::Main(tasks) => handler(name, tasks),
        Role::Task | Role::Generator => TokenStream::new(),
    };
    let doc = format!("The entry of [`{name}`](fn@{name}): its encoding, and its calls.");
    Ok(quote! {
        #function

        #[doc = #doc]
        #[allow(non_camel_case_types, dead_code, reason = "it shares its name with the function")]
        #visibility struct #name {}

        #companion
        #entry
        #handler
    })
}

/// `call` and `submit`.
fn companion(function: &ItemFn, parameters: &[Parameter], returns: &Type) -> TokenStream {
    let (name, visibility) = (&function.sig.ident, &function.vis);
    let names: Vec<_> = parameters.iter().map(|p| &p.name).collect();
    let types = parameters.iter().map(|Parameter { ty, rest, .. }| match rest {
        true => quote!(impl ::core::iter::IntoIterator<Item = impl ::fanfold::Arg<#ty>>),
        false => quote!(impl ::fanfold::Arg<#ty>),
    });
    let types: Vec<_> = types.collect();
    let passes = parameters.iter().map(|Parameter { name, ty, rest, .. }| match rest {
        true => quote!(.pass_all::<#ty>(#name)),
        false => quote!(.pass::<#ty>(#name)),
    });
    quote! {
        #[allow(dead_code, clippy::too_many_arguments, reason = "not every entry is called in both ways")]
        impl #name {
            /// A call that has not been made yet: give it wishes, then `submit` it.
            #visibility fn call(#(#names: #types),*) -> ::fanfold::Call<#returns> {
                ::fanfold::Call::of_entry::<Self>() #(#passes)*
            }

            /// Calls it as a task; returns at once.
            ///
            /// # Errors
            /// As [`fanfold::Call::submit`].
            #visibility fn submit(
                #(#names: #types),*
            ) -> ::fanfold::Result<<#returns as ::fanfold::Returns>::Handle> {
                Self::call(#(#names),*).submit()
            }
        }
    }
}

/// Decoding, the function itself, encoding.
fn entry(name: &Ident, role: &Role, parameters: &[Parameter], output: &Output) -> Result<TokenStream> {
    let entry = match role {
        Role::Main(_) => String::new(),
        Role::Task | Role::Generator => name.to_string(),
    };
    let variadic = parameters.iter().any(|p| p.rest);
    let count = parameters.len() - usize::from(variadic);
    let values: Vec<_> = (0..parameters.len()).map(|n| quote::format_ident!("value{n}")).collect();
    let decoded = parameters.iter().zip(&values).map(|(Parameter { name, ty, rest, .. }, value)| {
        let text = LitStr::new(&name.to_string(), name.span());
        match rest {
            true => quote!(let #value = args.rest::<#ty>(#text)?;),
            false => quote!(let #value = args.next::<#ty>(#text)?;),
        }
    });
    let passed = parameters.iter().zip(&values).map(|(parameter, value)| match parameter.borrowed {
        true => quote!(&#value),
        false => quote!(#value),
    });
    let mut arguments: Vec<_> = passed.collect();
    if matches!(role, Role::Generator) {
        arguments.insert(0, quote!(&mut ::fanfold::Yielder::new()));
    }
    let call = answer(&quote!(#name(#(#arguments),*)), role, output);
    Ok(quote! {
        impl ::fanfold::Entry for #name {
            const NAME: &'static str = #entry;

            #[allow(unused_mut, unused_variables, clippy::unit_arg, reason = "generated for any signature")]
            fn run(
                args: ::std::vec::Vec<::fanfold::raw::Value>,
            ) -> ::fanfold::Result<::std::vec::Vec<::fanfold::raw::Value>> {
                let mut args =
                    ::fanfold::rt::Args::new(<Self as ::fanfold::Entry>::NAME, args, #count, #variadic)?;
                #(#decoded)*
                #call
            }
        }
    })
}

/// Runs `call` and encodes what it returns.
fn answer(call: &TokenStream, role: &Role, output: &Output) -> TokenStream {
    let encode = |value: TokenStream| match (role, output.forward) {
        (Role::Generator, _) => {
            quote!({ let () = #value; ::core::result::Result::Ok(::std::vec::Vec::new()) })
        }
        (_, true) => quote!(::fanfold::rt::IntoOutputs::into_outputs(::fanfold::rt::Forward(#value))),
        (_, false) => quote!(::fanfold::rt::IntoOutputs::into_outputs(#value)),
    };
    if !output.fallible {
        return encode(call.clone());
    }
    let encoded = encode(quote!(value));
    quote! {
        match #call {
            ::core::result::Result::Ok(value) => #encoded,
            ::core::result::Result::Err(error) => {
                ::core::result::Result::Err(::fanfold::rt::Failure::into_error(error))
            }
        }
    }
}

/// The component's export. Natively there is none: `Local` calls entries directly.
fn handler(main: &Ident, tasks: &[Path]) -> TokenStream {
    quote! {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "the export that the component model asks for")]
        const _: () = {
            struct Handler;

            impl ::fanfold::rt::bindings::exports::fanfold::function::handler::Guest for Handler {
                fn handle(
                    entry: ::std::string::String,
                    args: ::std::vec::Vec<::fanfold::raw::Value>,
                ) -> ::core::result::Result<::std::vec::Vec<::fanfold::raw::Value>, ::fanfold::raw::Error> {
                    let outputs = match ::fanfold::rt::unlabelled(&entry) {
                        "" => <#main as ::fanfold::Entry>::run(args),
                        #(name if name == <#tasks as ::fanfold::Entry>::NAME => {
                            <#tasks as ::fanfold::Entry>::run(args)
                        })*
                        unknown => ::fanfold::rt::unknown_entry(unknown),
                    };
                    outputs.map_err(::core::convert::Into::into)
                }
            }

            ::fanfold::rt::export!(Handler with_types_in ::fanfold::rt::bindings);
        };
    }
}
