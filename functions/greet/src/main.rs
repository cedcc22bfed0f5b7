//! A plain program, as any language can make one: arguments are names to greet, standard input lines are more of them,
//! the environment variable `GREETING` is the word to greet with. `--exit CODE` ends with that exit code (of which WASI 0.2
//! passes on only whether it is zero).

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
};

fn main() -> ExitCode {
    match greet() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("greet: {error}");
            ExitCode::FAILURE
        }
    }
}

fn greet() -> io::Result<ExitCode> {
    let greeting = std::env::var("GREETING").unwrap_or_else(|_| "Hello".into());
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut greeted = false;
    let mut code = ExitCode::SUCCESS;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--exit" {
            let number = arguments.next().and_then(|text| text.parse::<u8>().ok());
            code = number.ok_or_else(|| io::Error::other("--exit needs a number from 0 to 255"))?.into();
            continue;
        }
        writeln!(out, "{greeting}, {argument}!")?;
        greeted = true;
    }
    for name in io::stdin().lock().lines() {
        writeln!(out, "{greeting}, {}!", name?.trim())?;
        greeted = true;
    }
    if !greeted {
        writeln!(out, "{greeting}, world!")?;
    }
    out.flush()?;
    Ok(code)
}
