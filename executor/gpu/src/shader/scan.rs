//! A look at WGSL before it is parsed: how deep it nests, without calling itself.
//!
//! Parsing, lowering and translating walk a shader's tree by calls within calls, and an exhausted stack ends the process. What passes
//! here has a tree whose depth is bounded. Comments are skipped exactly as the parser skips them; where in doubt, more is counted.

use fanfold_protocol::limit::{GPU_SHADER_BYTES_MAX, GPU_SHADER_CHAIN_MAX, GPU_SHADER_DEPTH_MAX};

/// Refuses what is too long, or nests too deep.
pub(super) fn scan(source: &str) -> Result<(), String> {
    if source.len() > GPU_SHADER_BYTES_MAX {
        return Err(format!("{} bytes of WGSL, at most {GPU_SHADER_BYTES_MAX}", source.len()));
    }
    let mut scan = Scan { rest: source, levels: vec![Level::default()], templates: 0, closed: false };
    while let Some(token) = scan.token() {
        scan.take(token)?;
    }
    Ok(())
}

/// What is open around the present token: the file, or a bracket.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Operators on the way from the statement's beginning to this bracket.
    outer: usize,
    /// Operators on the way to the present token.
    operators: usize,
    /// The most on any way to a token of this bracket so far.
    most: usize,
    /// Branches of the present chain of `else if`.
    branches: usize,
}

enum Token<'a> {
    Word(&'a str),
    Mark(char),
}

struct Scan<'a> {
    rest: &'a str,
    levels: Vec<Level>,
    templates: usize,
    /// Whether the last token closed a block: an `else` may follow.
    closed: bool,
}

impl<'a> Scan<'a> {
    /// The next word or mark outside comments and white space.
    fn token(&mut self) -> Option<Token<'a>> {
        loop {
            let first = self.rest.chars().next()?;
            if self.rest.starts_with("//") {
                let end = self.rest.find(is_line_end).unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            } else if self.rest.starts_with("/*") {
                self.rest = after_block_comment(&self.rest[2..]);
            } else if is_word(first) {
                let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                return Some(Token::Word(word));
            } else {
                self.rest = &self.rest[first.len_utf8()..];
                if !first.is_whitespace() {
                    return Some(Token::Mark(first));
                }
            }
        }
    }

    fn take(&mut self, token: Token<'_>) -> Result<(), String> {
        let closed = std::mem::take(&mut self.closed);
        let otherwise = matches!(token, Token::Word("else"));
        if closed && !otherwise {
            self.level().branches = 0;
        }
        match token {
            Token::Word(_) if otherwise => {
                self.level().branches += 1;
                too_many(self.level().branches, "branches of one `else if`")
            }
            Token::Word(_) => Ok(()),
            Token::Mark('(' | '[' | '{') if self.levels.len() > GPU_SHADER_DEPTH_MAX => {
                Err(format!("more than {GPU_SHADER_DEPTH_MAX} brackets within one another"))
            }
            Token::Mark('{') => {
                self.levels.push(Level::default());
                self.templates = 0;
                Ok(())
            }
            Token::Mark('(' | '[') => self.open(),
            Token::Mark(')' | ']') => {
                self.close();
                Ok(())
            }
            Token::Mark('}') => {
                self.close();
                self.end_statement();
                self.closed = true;
                Ok(())
            }
            Token::Mark(';') => {
                self.end_statement();
                Ok(())
            }
            Token::Mark(',') => {
                let level = self.level();
                level.operators = level.outer;
                Ok(())
            }
            Token::Mark(mark) => self.operator(mark),
        }
    }

    fn open(&mut self) -> Result<(), String> {
        // Calls and indices are operators on what is before the bracket.
        self.operator('(')?;
        let operators = self.level().operators;
        self.levels.push(Level { outer: operators, operators, most: operators, branches: 0 });
        Ok(())
    }

    /// Closes a bracket. One too many is for the parser to complain about.
    fn close(&mut self) {
        if self.levels.len() > 1 {
            let inner = self.levels.pop().unwrap_or_default();
            let level = self.level();
            level.operators = level.operators.max(inner.most);
            level.most = level.most.max(level.operators);
        }
    }

    fn end_statement(&mut self) {
        self.templates = 0;
        let level = self.level();
        *level = Level { branches: level.branches, ..Level::default() };
    }

    fn operator(&mut self, mark: char) -> Result<(), String> {
        match mark {
            '<' => self.templates += 1,
            '>' => self.templates = self.templates.saturating_sub(1),
            _ => {}
        }
        too_many(self.templates, "angle brackets within one another")?;
        let level = self.level();
        level.operators += 1;
        level.most = level.most.max(level.operators);
        too_many(level.operators, "operators in one expression")
    }

    fn level(&mut self) -> &mut Level {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }
}

fn too_many(count: usize, what: &str) -> Result<(), String> {
    if count > GPU_SHADER_CHAIN_MAX {
        Err(format!("more than {GPU_SHADER_CHAIN_MAX} {what}"))
    } else {
        Ok(())
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// As in the WGSL specification, section 3.2.
fn is_line_end(c: char) -> bool {
    matches!(c, '\u{a}'..='\u{d}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What follows a block comment, which may hold others. Like the parser, this takes the first character for no end.
fn after_block_comment(inside: &str) -> &str {
    let mut chars = inside.chars();
    let mut previous = chars.next();
    let mut depth = 1;
    while let Some(c) = chars.next() {
        match (previous, c) {
            (Some('*'), '/') => {
                previous = None;
                depth -= 1;
                if depth == 0 {
                    return chars.as_str();
                }
            }
            (Some('/'), '*') => {
                previous = None;
                depth += 1;
            }
            _ => previous = Some(c),
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use wgpu::naga::{
        front::wgsl,
        valid::{Capabilities, ValidationFlags, Validator},
    };

    use super::*;

    fn check(source: &str, expected: Result<(), &str>) {
        match (scan(source), expected) {
            (Ok(()), Ok(())) => {}
            (Err(message), Err(part)) if message.contains(part) => {}
            (found, _) => {
                panic!("{}…: {found:?}, not {expected:?}", source.chars().take(60).collect::<String>())
            }
        }
    }

    #[test]
    fn depth_is_counted_and_width_is_not() {
        check("fn f() -> f32 { return (1.0 + 2.0) * 3.0; }", Ok(()));
        check(&format!("const a = array({}0.0);", "-1.5, ".repeat(10_000)), Ok(()));
        check(&"let a = b + c; ".repeat(10_000), Ok(()));
        check(&"(".repeat(65), Err("brackets"));
        check(&format!("{}{}", "{(".repeat(32), ")}".repeat(32)), Ok(()));
        check(&format!("let a = 1{};", "+1".repeat(600)), Err("operators"));
        check(&format!("let a = {}b;", "!".repeat(600)), Err("operators"));
        check(&format!("let a = b{};", ".x".repeat(600)), Err("operators"));
        check(&format!("let a = b{};", "[0]".repeat(600)), Err("operators"));
        // A chain that is hidden in the arguments of a chain.
        check(&format!("let a = 1{0} + f(2, 1{0});", "+1".repeat(300)), Err("operators"));
        check(&format!("let a = array({}1{});", "array(1,".repeat(70), ")".repeat(70)), Err("brackets"));
        check(&format!("var a: {}f32;", "t<1,".repeat(600)), Err("angle"));
        check(&format!("if a {{}} {}", "else if b { if c {} } ".repeat(600)), Err("branches"));
        check(&"if a {} else if b {} ".repeat(600), Ok(()));
        check(&" ".repeat(GPU_SHADER_BYTES_MAX + 1), Err("bytes"));
    }

    #[test]
    fn comments_hide_nothing() {
        let deep = "(".repeat(65);
        check(&format!("// {deep}\n/* {deep} /* */ {deep} */"), Ok(()));
        for end in ["\n", "\r", "\u{b}", "\u{85}", "\u{2028}"] {
            check(&format!("// {end}{deep}"), Err("brackets"));
        }
        check(&format!("/* */{deep}"), Err("brackets"));
        check(&format!("/***/{deep}"), Err("brackets"));
        // The parser takes this for a comment within one.
        check(&format!("/*/* */{deep}*/ */{deep}"), Err("brackets"));
    }

    /// Runs on a small part of the stack that a worker has. One that is exhausted ends the test process.
    fn on_a_small_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::Builder::new().stack_size(16 << 20).spawn(run);
        thread.expect("there is room for a thread").join().expect("the parser or the validator panicked")
    }

    /// What can be around an expression, or a statement, and is as valid as what is in it.
    const EXPRESSIONS: &[(&str, &str)] = &[
        ("(", ")"),
        ("~", ""),
        ("", " * a"),
        ("a + ", ""),
        ("d[", "]"),
        ("max(1u, ", ")"),
        ("array(", ", 1u)[0]"),
        ("vec2(", ").x"),
        ("select(1u, 2u, 0u < (", "))"),
    ];
    const STATEMENTS: &[(&str, &str)] = &[
        ("{", "}"),
        ("if a == 1u {", "}"),
        ("if a == 1u {} else {", "}"),
        ("if a == 1u {} else if a == 2u {} else {", "}"),
        ("loop {", "break; }"),
        ("for (var i = 0u; i < 2u; i++) {", "}"),
        ("while a > 1u {", "}"),
        ("switch a { default: {", "} }"),
    ];

    /// A shader of such layers, outermost first, each so many times.
    fn layered(statements: &[(usize, usize)], expressions: &[(usize, usize)]) -> String {
        let build = |kinds: &[(&str, &str)], layers: &[(usize, usize)], inner: &str| {
            let layers = layers.iter().map(|(kind, times)| (kinds[*kind], *times));
            let open: String = layers.clone().map(|((open, _), times)| open.repeat(times)).collect();
            let close: String = layers.rev().map(|((_, close), times)| close.repeat(times)).collect();
            format!("{open}{inner}{close}")
        };
        let statement = format!("a = {};", build(EXPRESSIONS, expressions, "a"));
        let body = build(STATEMENTS, statements, &statement);
        format!(
            "@group(0) @binding(0) var<storage, read_write> d: array<u32>;
            @compute @workgroup_size(1) fn f() {{ var a = d[0]; {body} d[1] = a; }}"
        )
    }

    fn compile(source: &str) -> Result<(), String> {
        let module = wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::empty());
        validator.validate(&module).map(drop).map_err(|e| e.emit_to_string(source))
    }

    /// As much of each kind as passes, in the deepest function that there can be.
    #[test]
    fn what_just_passes_is_compiled_on_a_small_stack() {
        let deepest = |shader: &dyn Fn(usize) -> String| {
            let passes = |times: &usize| scan(&shader(*times)).is_ok();
            let times = (1..=GPU_SHADER_CHAIN_MAX + 1).take_while(passes).last().expect("one passes");
            assert!((GPU_SHADER_DEPTH_MAX / 4..=GPU_SHADER_CHAIN_MAX).contains(&times), "{times}");
            shader(times)
        };
        let expressions = (0..EXPRESSIONS.len()).map(|kind| deepest(&|times| layered(&[], &[(kind, times)])));
        let statements = (0..STATEMENTS.len()).map(|kind| deepest(&|times| layered(&[(kind, times)], &[])));
        for source in expressions.chain(statements) {
            assert_eq!(on_a_small_stack(move || compile(&source)), Ok(()));
        }
    }

    proptest! {
        /// Layers of all kinds, often as deep as may be.
        #[test]
        fn what_passes_is_compiled_on_a_small_stack(
            statements in vec((0..STATEMENTS.len(), 1usize..40), 0..5),
            expressions in vec((0..EXPRESSIONS.len(), 1usize..200), 0..8),
        ) {
            let source = layered(&statements, &expressions);
            if scan(&source).is_ok() {
                prop_assert_eq!(on_a_small_stack(move || compile(&source)), Ok(()));
            }
        }

        /// What is hardly ever a shader is refused by the parser, which survives it.
        #[test]
        fn nonsense_that_passes_is_read_on_a_small_stack(words in vec(word(), 0..400)) {
            let source: String = words.concat();
            if scan(&source).is_ok() {
                on_a_small_stack(move || wgsl::parse_str(&source).map(drop).is_ok());
            }
        }
    }

    const WORDS: &[&str] = &[
        "fn ",
        "f",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "<",
        ">",
        "+",
        "-",
        "!",
        "*",
        "&",
        "let ",
        "var",
        "a",
        "=",
        ";",
        ",",
        ":",
        "f32",
        "u32",
        "array",
        "vec3",
        "if ",
        "else ",
        "loop ",
        "return ",
        "1",
        "0x7fffffff",
        "1.5e38",
        "//",
        "/*",
        "*/",
        "\n",
        "@compute ",
        "@workgroup_size(1) ",
        "@group(0) ",
        "@binding(9) ",
        "struct ",
        "alias ",
        "const ",
        "override ",
        "enable f16;",
        "->",
        "<<",
        "==",
        "||",
        ".x",
        "\u{2028}",
    ];

    fn word() -> impl Strategy<Value = String> {
        (proptest::sample::select(WORDS), 1usize..40).prop_map(|(word, times)| word.repeat(times))
    }
}
