//! The one error that crosses crates, processes and the wire. Its [`Kind`] says what the caller does next.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// What the caller should do next. The names are those of the `kind` member of `application/problem+json`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Kind {
    /// The request is wrong; change it.
    Invalid,
    /// The caller may not do this.
    Unauthorized,
    /// No such function, version, job, partition or object.
    NotFound,
    /// The request contradicts what is there.
    Conflict,
    /// Too much at once; try again later. Nothing ran.
    Overloaded,
    /// The function itself failed: it returned an error, trapped, or answered nonsense.
    Guest,
    /// The function went over a limit: time, memory, stack, logs or output.
    Limit,
    /// Data or an executor was lost and could not be made again.
    Lost,
    /// The platform failed; not the caller's doing.
    Platform,
}

impl Kind {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::Overloaded => "overloaded",
            Self::Guest => "guest",
            Self::Limit => "limit",
            Self::Lost => "lost",
            Self::Platform => "platform",
        }
    }
}

/// Which failure within the kind; stable, for programs and tests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each name says all there is to say; the message has the rest")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Code {
    // invalid
    Name,
    Manifest,
    NotWasm,
    MalformedComponent,
    MissingImports,
    NoExport,
    ComponentTooLarge,
    BodyTooLarge,
    Request,
    Method,
    RequestTimeout,
    Call,
    Certificate,
    Gpu,
    Shader,
    Trigger,
    Event,
    // unauthorized
    Token,
    Egress,
    // not-found
    Function,
    Version,
    Invocation,
    Partition,
    Object,
    Route,
    DeadLetter,
    // conflict
    Fenced,
    Protocol,
    DirectoryInUse,
    IdempotencyKey,
    AlreadyFinished,
    NotFinished,
    Precondition,
    GpuAdapter,
    // overloaded
    QueueFull,
    Memory,
    Draining,
    // guest
    Trap,
    ExitStatus,
    ErrorReturned,
    MalformedResponse,
    NonDeterministic,
    // limit
    Timeout,
    OutOfMemory,
    StackOverflow,
    LogOverflow,
    OutputTooLarge,
    Compile,
    Deadline,
    GpuMemory,
    GpuTime,
    // lost
    ExecutorLost,
    GpuLost,
    PartitionLost,
    Corrupt,
    // platform
    Cancelled,
    Storage,
    DiskFull,
    Unreachable,
    Internal,
}

/// A failure: its kind, its code, a message for the person who must act, and whether trying again may help.
///
/// Messages are lower case and unpunctuated, name the thing that is wrong and say what to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Error {
    /// What the caller does next.
    pub kind: Kind,
    /// Which failure within the kind.
    pub code: Code,
    /// For people.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub message: Cow<'static, str>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
}

impl Error {
    /// An error that is retryable exactly when its kind usually is: `overloaded`, `lost` and `platform`.
    pub fn new(kind: Kind, code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        let retryable = matches!(kind, Kind::Overloaded | Kind::Lost | Kind::Platform);
        Self { kind, code, message: message.into(), retryable }
    }

    /// The same error with `retryable` set.
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// The same error with `context` and a colon before its message.
    pub fn context(mut self, context: impl std::fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message).into();
        self
    }

    /// [`Kind::Invalid`], [`Code::Request`].
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, Code::Request, message)
    }

    /// [`Kind::NotFound`].
    pub fn not_found(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::NotFound, code, message)
    }

    /// [`Kind::Platform`], [`Code::Internal`].
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Platform, Code::Internal, message)
    }
}
