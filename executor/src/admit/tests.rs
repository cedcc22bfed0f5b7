//! What admission accepts and refuses, with guests in text.

use super::*;

fn check(wat: &str, wanted: Result<(ComponentKind, bool), (Code, &str)>) {
    let bytes = wat::parse_str(wat).unwrap();
    match (admit(&bytes), wanted) {
        (Ok((_, found)), Ok((kind, submits))) => assert_eq!((found.kind, found.submits), (kind, submits)),
        (Err(error), Err((code, part))) => {
            assert_eq!(error.code, code, "{error}");
            assert!(error.message.contains(part), "{error}");
            assert_eq!(error.kind, Kind::Invalid);
        }
        (got, wanted) => panic!("{wat}: {got:?}, wanted {wanted:?}"),
    }
}

const RUN: &str = r#"(core module $m (func (export "run") (result i32) i32.const 0))
    (core instance $i (instantiate $m))
    (func $run (result (result)) (canon lift (core func $i "run")))
    (instance $e (export "run" (func $run)))"#;

fn component(before: &str) -> String {
    format!(r#"(component {before} {RUN} (export "wasi:cli/run@0.2.3" (instance $e)))"#)
}

#[test]
fn kinds_come_from_exports() {
    check(&component(""), Ok((ComponentKind::Cli, false)));
    let submits = r#"(import "fanfold:function/tasks@0.1.0" (instance))"#;
    check(&component(submits), Ok((ComponentKind::Cli, true)));
    check(
        r#"(module (memory (export "memory") 1) (func (export "_start")))"#,
        Ok((ComponentKind::Cli, false)),
    );
    check("(component)", Err((Code::NoExport, "exports nothing")));
    let draft = format!(r#"(component {RUN} (export "wasi:cli/run@0.3.0" (instance $e)))"#);
    check(&draft, Err((Code::NoExport, "wasi:cli/run@0.3.0")));
    check(r#"(module (func (export "main")))"#, Err((Code::NoExport, "main and not `_start`")));
}

#[test]
fn missing_imports_are_all_named() {
    let imports = r#"
        (import "wasi:io/poll@0.2.9" (instance))
        (import "wasi:keyvalue/store@0.2.0-draft" (instance (export "open" (func)) (export "close" (func))))
        (import "wasi:cli/environment@0.3.0" (instance))
        (import "plain" (func))"#;
    let wanted = "does not offer: wasi:keyvalue/store@0.2.0-draft (function open, close); \
                  wasi:cli/environment@0.3.0; plain";
    check(&component(imports), Err((Code::MissingImports, wanted)));
    let module = r#"(module (import "env" "fork" (func)) (func (export "_start")))"#;
    check(module, Err((Code::MissingImports, "env (function fork)")));
}

/// Every proposal that is switched off, in a component that would be fine otherwise.
#[test]
fn switched_off_proposals_are_refused() {
    for (what, module) in [
        ("gc", "(type (struct))"),
        ("exceptions", "(tag)"),
        ("function references", "(type $t (func)) (func (param (ref $t)))"),
        ("shared memory", "(memory 1 1 shared)"),
        ("threads", "(memory 1) (func i32.const 0 i32.const 0 i32.const 0 memory.atomic.notify drop)"),
        ("memory64", "(memory i64 1)"),
        ("stack switching", "(type $f (func)) (type $c (cont $f))"),
        ("custom page sizes", "(memory 1 (pagesize 1))"),
    ] {
        let bytes = wat::parse_str(component(&format!("(core module {module})"))).unwrap();
        let error = admit(&bytes).unwrap_err();
        assert_eq!(error.code, Code::MalformedComponent, "{what}: {error}");
        let engine = engine::compiling().unwrap();
        assert!(engine.precompile_component(&bytes).is_err(), "the engine takes {what}");
    }
    for (what, item) in [
        ("async functions", "(import \"f\" (func async))"),
        ("streams", "(type (stream u8))"),
        ("error contexts", "(core func (canon error-context.drop))"),
    ] {
        let bytes = wat::parse_str(component(item)).unwrap();
        let error = admit(&bytes).unwrap_err();
        assert_eq!(error.code, Code::MalformedComponent, "{what}: {error}");
        assert!(
            error.message.contains("switched off") || error.message.contains("feature"),
            "{what}: {error}"
        );
    }
}

#[test]
fn bytes_that_are_no_component_are_refused() {
    let refuse = |bytes: &[u8]| admit(bytes).unwrap_err();
    assert_eq!(refuse(b"").code, Code::NotWasm);
    let error = refuse(b"PK\x03\x04 a zip");
    assert_eq!(error.code, Code::NotWasm);
    assert!(error.message.contains(r"PK\x03\x04"), "{error}");
    let whole = wat::parse_str(component("")).unwrap();
    for cut in [9, whole.len() / 2, whole.len() - 1] {
        let error = refuse(&whole[..cut]);
        assert_eq!(error.code, Code::MalformedComponent, "{error}");
    }
    assert!(refuse(&whole[..whole.len() / 2]).message.contains("cut off"));
}

#[test]
fn limits_hold_before_compiling() {
    let functions = |n: usize| format!("(core module {})", "(func)".repeat(n));
    check(&component(&functions(100_001)), Err((Code::ComponentTooLarge, "functions")));
    check(&component(&"(core module)".repeat(64)), Err((Code::ComponentTooLarge, "65 core modules")));
    let locals = format!("(core module (func (local {})))", "i32 ".repeat(10_001));
    check(&component(&locals), Err((Code::ComponentTooLarge, "10001 locals")));
    let body = format!("(core module (func {}))", "nop ".repeat(1 << 20));
    check(&component(&body), Err((Code::ComponentTooLarge, "a function of")));
    let imports: String = (0..257).map(|n| format!("(import \"a:b/c{n}\" (instance))")).collect();
    check(&component(&imports), Err((Code::ComponentTooLarge, "257 imports")));
    assert_eq!(check_size(limit::COMPONENT_BYTES_MAX + 1).unwrap_err().code, Code::ComponentTooLarge);
}

use crate::engine;
