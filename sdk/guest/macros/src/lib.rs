//! The attributes of the `fanfold` crate, which re-exports them; see its documentation for the whole picture.
//!
//! Each attribute leaves the function as it is and adds a type of the same name (functions and types do not collide in
//! Rust) that knows how to decode its arguments and, for tasks and generators, how to call it.

mod expand;
mod signature;

use proc_macro::TokenStream;
use syn::{ItemFn, Path, Token, parse::Parse, parse::ParseStream, parse_macro_input, punctuated::Punctuated};

use expand::Role;

/// Makes a function the main entry of the component.
///
/// It takes the request's body (or a job's input) as its only parameter, or nothing. Further entries that it, or
/// anybody, may call are named: `#[fanfold::function(tasks(map, merge))]`.
#[proc_macro_attribute]
pub fn function(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let tasks = parse_macro_input!(attributes as Tasks).0;
    expanded(item, &Role::Main(tasks))
}

/// Makes a function an entry that can be called as a task: `map::submit(…)`, `map::call(…)`.
///
/// It must be named in the `tasks(…)` of the component's [`macro@function`].
#[proc_macro_attribute]
pub fn task(attributes: TokenStream, item: TokenStream) -> TokenStream {
    parse_macro_input!(attributes as Nothing);
    expanded(item, &Role::Task)
}

/// Makes a function an entry whose outputs appear while it runs. Its first parameter is a `&mut Yielder<T>`; the
/// others are as a task's. `submit` returns a `Generator<T>`.
///
/// It must be named in the `tasks(…)` of the component's [`macro@function`].
#[proc_macro_attribute]
pub fn generator(attributes: TokenStream, item: TokenStream) -> TokenStream {
    parse_macro_input!(attributes as Nothing);
    expanded(item, &Role::Generator)
}

fn expanded(item: TokenStream, role: &Role) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    expand::expand(&function, role).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// `tasks(a, b::c)`, or nothing.
struct Tasks(Vec<Path>);

impl Parse for Tasks {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let word: syn::Ident = input.parse()?;
        if word != "tasks" {
            return Err(syn::Error::new(word.span(), "expected `tasks(…)`"));
        }
        let names;
        syn::parenthesized!(names in input);
        let paths = Punctuated::<Path, Token![,]>::parse_terminated_with(&names, Path::parse_mod_style)?;
        match input.is_empty() {
            true => Ok(Self(paths.into_iter().collect())),
            false => Err(input.error("expected nothing after `tasks(…)`")),
        }
    }
}

struct Nothing;

impl Parse for Nothing {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.is_empty() { Ok(Self) } else { Err(input.error("this attribute takes nothing")) }
    }
}
