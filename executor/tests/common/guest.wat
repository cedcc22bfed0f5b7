;; A task function whose entries each do one thing. The first letter of the entry's name chooses; see `handle`.
;;
;; Layouts (canonical ABI): a `value` has 56 bytes: its case at 0, its payload from 8 on (inline: pointer and length of
;; the bytes at 8 and 12, of the refs at 16 and 20; partition: the task at 8 and 16, the output at 24). A result whose
;; error is an `error` record has its case at 0 and, unless a value or an id is inside, its payload at 4.
(module
  (import "fanfold:function/tasks@0.1.0" "submit" (func $submit (param i32 i32)))
  (import "fanfold:function/tasks@0.1.0" "wait" (func $wait (param i32 i32 i32 i32 i64 i32)))
  (import "fanfold:function/tasks@0.1.0" "get" (func $get (param i32 i32)))
  (import "fanfold:function/tasks@0.1.0" "[resource-drop]future" (func $drop (param i32)))
  (import "fanfold:function/data@0.1.0" "create" (func $create (param i32 i32)))
  (import "fanfold:function/data@0.1.0" "[method]writer.write" (func $write (param i32 i32 i32 i32)))
  (import "fanfold:function/data@0.1.0" "[method]writer.end-block" (func $end_block (param i32 i32)))
  (import "fanfold:function/data@0.1.0" "finish" (func $finish (param i32 i32)))
  (import "fanfold:function/data@0.1.0" "put" (func $put (param i32 i32 i32 i32 i32)))
  (import "fanfold:function/data@0.1.0" "open"
    (func $open (param i32 i64 i64 i32 i32 i32 i64 i32 i64 i32)))
  (import "fanfold:function/data@0.1.0" "yield-partition"
    (func $yield (param i32 i64 i64 i32 i32 i32 i64 i32 i64 i32)))
  (import "fanfold:function/data@0.1.0" "[method]reader.size" (func $size (param i32) (result i64)))
  (import "fanfold:function/data@0.1.0" "[method]reader.read" (func $read (param i32 i64 i32 i32)))

  (memory (export "memory") 2)
  ;; What a call of the entry `echo` looks like: entry at 12, arguments at 20, an output at 136; all else is zero.
  (data (i32.const 1024) "echo")
  (data (i32.const 1032) "it is what it is")
  (global $heap (mut i32) (i32.const 4096))

  (func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (call $alloc (local.get 3)))

  (func $alloc (param $bytes i32) (result i32)
    (local $at i32) (local $missing i32)
    (local.set $at (global.get $heap))
    (global.set $heap
      (i32.and (i32.add (i32.add (local.get $at) (local.get $bytes)) (i32.const 7)) (i32.const -8)))
    (local.set $missing
      (i32.sub (i32.shr_u (i32.add (global.get $heap) (i32.const 65535)) (i32.const 16)) (memory.size)))
    (if (i32.gt_s (local.get $missing) (i32.const 0))
      (then (if (i32.lt_s (memory.grow (local.get $missing)) (i32.const 0)) (then unreachable))))
    (local.get $at))

  ;; A result `ok` with a list.
  (func $ok (param $list i32) (param $length i32) (result i32)
    (local $at i32)
    (local.set $at (call $alloc (i32.const 24)))
    (i32.store (local.get $at) (i32.const 0))
    (i32.store offset=4 (local.get $at) (local.get $list))
    (i32.store offset=8 (local.get $at) (local.get $length))
    (local.get $at))

  ;; Whether the result at $at, with its payload at $payload, is an error.
  (func $failed (param $at i32) (result i32) (i32.load8_u (local.get $at)))

  ;; A result `err` with the error at $from.
  (func $err (param $from i32) (result i32)
    (local $at i32)
    (local.set $at (call $alloc (i32.const 24)))
    (i32.store (local.get $at) (i32.const 1))
    (memory.copy (i32.add (local.get $at) (i32.const 4)) (local.get $from) (i32.const 16))
    (local.get $at))

  ;; The first byte of an inline value.
  (func $first (param $value i32) (result i32) (i32.load8_u (i32.load offset=8 (local.get $value))))

  ;; Submits `echo` with one argument; the result.
  (func $submit_echo (param $value i32) (result i32)
    (local $call i32) (local $out i32)
    (local.set $call (call $alloc (i32.const 144)))
    (memory.fill (local.get $call) (i32.const 0) (i32.const 144))
    (i32.store offset=12 (local.get $call) (i32.const 1024))
    (i32.store offset=16 (local.get $call) (i32.const 4))
    (i32.store offset=20 (local.get $call) (local.get $value))
    (i32.store offset=24 (local.get $call) (i32.const 1))
    (i32.store offset=136 (local.get $call) (i32.const 1))
    (local.set $out (call $alloc (i32.const 24)))
    (call $submit (local.get $call) (local.get $out))
    (local.get $out))

  ;; `fan`: as many calls of `echo` as the argument's first two bytes say; waits for all, gets and drops each.
  (func $fan (param $value i32) (result i32)
    (local $n i32) (local $i i32) (local $handles i32) (local $out i32)
    (local.set $n (i32.load16_u (i32.load offset=8 (local.get $value))))
    (local.set $handles (call $alloc (i32.shl (local.get $n) (i32.const 2))))
    (block $submitted (loop $more
      (br_if $submitted (i32.eq (local.get $i) (local.get $n)))
      (local.set $out (call $submit_echo (local.get $value)))
      (if (call $failed (local.get $out)) (then (return (local.get $out))))
      (i32.store (i32.add (local.get $handles) (i32.shl (local.get $i) (i32.const 2)))
        (i32.load (i32.load offset=4 (local.get $out))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $more)))
    (call $wait (local.get $handles) (local.get $n) (local.get $n) (i32.const 0) (i64.const 0) (local.get $out))
    (if (call $failed (local.get $out)) (then (return (local.get $out))))
    (block $got (loop $more
      (br_if $got (i32.eqz (local.get $i)))
      (local.set $i (i32.sub (local.get $i) (i32.const 1)))
      (call $get (i32.load (i32.add (local.get $handles) (i32.shl (local.get $i) (i32.const 2)))) (local.get $out))
      (if (call $failed (local.get $out)) (then (return (local.get $out))))
      (call $drop (i32.load (i32.add (local.get $handles) (i32.shl (local.get $i) (i32.const 2)))))
      (br $more)))
    (call $ok (local.get $value) (i32.const 1)))

  ;; `lone`: so many calls of `echo`, each got before the next.
  (func $lone (param $value i32) (result i32)
    (local $n i32) (local $out i32) (local $handle i32)
    (local.set $n (i32.load16_u (i32.load offset=8 (local.get $value))))
    (block $done (loop $more
      (br_if $done (i32.eqz (local.get $n)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (local.set $out (call $submit_echo (local.get $value)))
      (if (call $failed (local.get $out)) (then (return (local.get $out))))
      (local.set $handle (i32.load (i32.load offset=4 (local.get $out))))
      (call $get (local.get $handle) (local.get $out))
      (if (call $failed (local.get $out)) (then (return (local.get $out))))
      (call $drop (local.get $handle))
      (br $more)))
    (call $ok (local.get $value) (i32.const 1)))

  ;; `any`: two calls of `echo`, a wait for one of them; the positions that were ready.
  (func $any (param $value i32) (result i32)
    (local $handles i32) (local $out i32)
    (local.set $handles (call $alloc (i32.const 8)))
    (i32.store (local.get $handles) (i32.load (i32.load offset=4 (call $submit_echo (local.get $value)))))
    (i32.store offset=4 (local.get $handles) (i32.load (i32.load offset=4 (call $submit_echo (local.get $value)))))
    (local.set $out (call $alloc (i32.const 24)))
    (call $wait (local.get $handles) (i32.const 2) (i32.const 1) (i32.const 0) (i64.const 0) (local.get $out))
    (if (call $failed (local.get $out)) (then (return (local.get $out))))
    (call $inline (i32.load offset=4 (local.get $out)) (i32.shl (i32.load offset=8 (local.get $out)) (i32.const 2))))

  ;; A result with one inline value.
  (func $inline (param $bytes i32) (param $length i32) (result i32)
    (local $value i32)
    (local.set $value (call $alloc (i32.const 56)))
    (memory.fill (local.get $value) (i32.const 0) (i32.const 56))
    (i32.store offset=8 (local.get $value) (local.get $bytes))
    (i32.store offset=12 (local.get $value) (local.get $length))
    (call $ok (local.get $value) (i32.const 1)))

  ;; `write`: a partition of so many blocks of a mebibyte, the n-th filled with n.
  (func $write_blocks (param $value i32) (result i32)
    (local $n i32) (local $i i32) (local $out i32) (local $writer i32) (local $buffer i32)
    (local.set $n (call $first (local.get $value)))
    (local.set $out (call $alloc (i32.const 72)))
    (local.set $buffer (call $alloc (i32.const 1048576)))
    (call $create (i32.const 0) (local.get $out))
    (if (call $failed (local.get $out)) (then (return (local.get $out))))
    (local.set $writer (i32.load offset=4 (local.get $out)))
    (block $written (loop $more
      (br_if $written (i32.eq (local.get $i) (local.get $n)))
      (memory.fill (local.get $buffer) (local.get $i) (i32.const 1048576))
      (call $write (local.get $writer) (local.get $buffer) (i32.const 1048576) (local.get $out))
      (if (call $failed (local.get $out)) (then (return (local.get $out))))
      (call $end_block (local.get $writer) (local.get $out))
      (if (call $failed (local.get $out)) (then (return (local.get $out))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $more)))
    (call $finish (local.get $writer) (local.get $out))
    (if (call $failed (local.get $out)) (then (return (call $err (i32.add (local.get $out) (i32.const 8))))))
    (call $ok (i32.add (local.get $out) (i32.const 8)) (i32.const 1)))

  ;; `twice`: begins its output twice; the error.
  (func $twice (result i32)
    (local $out i32)
    (local.set $out (call $alloc (i32.const 24)))
    (call $create (i32.const 0) (local.get $out))
    (call $create (i32.const 0) (local.get $out))
    (local.get $out))

  ;; The reader of a partition or inline value is in the result at $out.
  (func $open_at (param $value i32) (param $out i32)
    (if (i32.load8_u (local.get $value))
      (then (call $open (i32.const 1)
        (i64.load offset=8 (local.get $value)) (i64.load offset=16 (local.get $value))
        (i32.load offset=24 (local.get $value))
        (i32.const 0) (i32.const 0) (i64.const 0) (i32.const 0) (i64.const 0) (local.get $out)))
      (else (call $open (i32.const 0)
        (i64.extend_i32_u (i32.load offset=8 (local.get $value)))
        (i64.extend_i32_u (i32.load offset=12 (local.get $value)))
        (i32.load offset=16 (local.get $value)) (i32.load offset=20 (local.get $value))
        (i32.const 0) (i64.const 0) (i32.const 0) (i64.const 0) (local.get $out)))))

  ;; `read`: reads the argument in mebibytes; answers the number of bytes and, after it, the first byte of each piece.
  (func $read_all (param $value i32) (result i32)
    (local $out i32) (local $reader i32) (local $at i64) (local $size i64) (local $answer i32) (local $end i32)
    (local.set $out (call $alloc (i32.const 24)))
    (call $open_at (local.get $value) (local.get $out))
    (if (call $failed (local.get $out)) (then (return (local.get $out))))
    (local.set $reader (i32.load offset=4 (local.get $out)))
    (local.set $size (call $size (local.get $reader)))
    (local.set $answer (call $alloc (i32.const 1024)))
    (i64.store (local.get $answer) (local.get $size))
    (local.set $end (i32.add (local.get $answer) (i32.const 8)))
    (block $done (loop $more
      (br_if $done (i64.ge_u (local.get $at) (local.get $size)))
      (call $read (local.get $reader) (local.get $at) (i32.const 1048576) (local.get $out))
      (if (call $failed (local.get $out)) (then (return (local.get $out))))
      (i32.store8 (local.get $end) (i32.load8_u (i32.load offset=4 (local.get $out))))
      (local.set $end (i32.add (local.get $end) (i32.const 1)))
      (local.set $at (i64.add (local.get $at) (i64.extend_i32_u (i32.load offset=8 (local.get $out)))))
      (global.set $heap (i32.load offset=4 (local.get $out)))
      (br $more)))
    (call $inline (local.get $answer) (i32.sub (local.get $end) (local.get $answer))))

  ;; `put`: puts the argument's bytes, passes the partition to `echo`, and returns what that one returned.
  (func $put_and_pass (param $value i32) (result i32)
    (local $out i32) (local $passed i32)
    (local.set $out (call $alloc (i32.const 40)))
    (call $put (i32.load offset=8 (local.get $value)) (i32.load offset=12 (local.get $value))
      (i32.const 0) (i32.const 0) (local.get $out))
    (if (call $failed (local.get $out)) (then (return (call $err (i32.add (local.get $out) (i32.const 8))))))
    (local.set $passed (call $alloc (i32.const 56)))
    (i32.store8 (local.get $passed) (i32.const 1))
    (memory.copy (i32.add (local.get $passed) (i32.const 8)) (i32.add (local.get $out) (i32.const 8)) (i32.const 24))
    (local.set $out (call $submit_echo (local.get $passed)))
    (if (call $failed (local.get $out)) (then (return (local.get $out))))
    (call $get (i32.load (i32.load offset=4 (local.get $out))) (local.get $out))
    (if (call $failed (local.get $out)) (then (return (local.get $out))))
    (call $inline (i32.load offset=4 (local.get $out)) (i32.load offset=8 (local.get $out))))

  ;; `stranger`: passes on a partition that it was never given; the error.
  (func $stranger (result i32)
    (local $value i32)
    (local.set $value (call $alloc (i32.const 56)))
    (i32.store8 (local.get $value) (i32.const 1))
    (i64.store offset=8 (local.get $value) (i64.const 77))
    (call $submit_echo (local.get $value)))

  ;; `generate`: yields the argument as often as its first byte says.
  (func $generate (param $value i32) (result i32)
    (local $n i32) (local $out i32)
    (local.set $n (call $first (local.get $value)))
    (local.set $out (call $alloc (i32.const 24)))
    (block $done (loop $more
      (br_if $done (i32.eqz (local.get $n)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (call $yield (i32.const 0)
        (i64.extend_i32_u (i32.load offset=8 (local.get $value)))
        (i64.extend_i32_u (i32.load offset=12 (local.get $value)))
        (i32.const 0) (i32.const 0) (i32.const 0) (i64.const 0) (i32.const 0) (i64.const 0) (local.get $out))
      (if (call $failed (local.get $out)) (then (return (local.get $out))))
      (br $more)))
    (call $ok (i32.const 0) (i32.const 0)))

  (func (export "fanfold:function/handler@0.1.0#handle")
    (param $entry i32) (param $entry_length i32) (param $args i32) (param $count i32) (result i32)
    (local $letter i32)
    (if (local.get $entry_length) (then (local.set $letter (i32.load8_u (local.get $entry)))))
    (if (i32.eq (local.get $letter) (i32.const 97)) (then (return (call $any (local.get $args)))))
    ;; big: an inline value of 100,000 bytes
    (if (i32.eq (local.get $letter) (i32.const 98))
      (then (return (call $inline (call $alloc (i32.const 100000)) (i32.const 100000)))))
    (if (i32.eq (local.get $letter) (i32.const 102)) (then (return (call $fan (local.get $args)))))
    (if (i32.eq (local.get $letter) (i32.const 103)) (then (return (call $generate (local.get $args)))))
    ;; loop
    (if (i32.eq (local.get $letter) (i32.const 108)) (then (loop $ever (br $ever))))
    ;; nothing: no value
    (if (i32.eq (local.get $letter) (i32.const 110)) (then (return (call $ok (i32.const 0) (i32.const 0)))))
    (if (i32.eq (local.get $letter) (i32.const 111)) (then (return (call $lone (local.get $args)))))
    (if (i32.eq (local.get $letter) (i32.const 112)) (then (return (call $put_and_pass (local.get $args)))))
    (if (i32.eq (local.get $letter) (i32.const 114)) (then (return (call $read_all (local.get $args)))))
    (if (i32.eq (local.get $letter) (i32.const 115)) (then (return (call $stranger))))
    (if (i32.eq (local.get $letter) (i32.const 116)) (then unreachable))
    (if (i32.eq (local.get $letter) (i32.const 50)) (then (return (call $twice))))
    (if (i32.eq (local.get $letter) (i32.const 119)) (then (return (call $write_blocks (local.get $args)))))
    ;; x: fails
    (if (i32.eq (local.get $letter) (i32.const 120)) (then
      (i32.store8 offset=2048 (i32.const 0) (i32.const 8))
      (i32.store offset=2052 (i32.const 0) (i32.const 1032))
      (i32.store offset=2056 (i32.const 0) (i32.const 16))
      (i32.store8 offset=2060 (i32.const 0) (i32.const 1))
      (return (call $err (i32.const 2048)))))
    ;; echo, and no name
    (call $ok (local.get $args) (local.get $count)))
)
