//! Where announcements are.
//!
//! | Redis key | kind | field | value |
//! |---|---|---|---|
//! | `ff:{<namespace>}:members` | hash, expires a minute after the last announcement | member's id | `<Redis's Unix milliseconds when it expires>:<Member as JSON>` |
//!
//! One script does everything in one round trip: writes or removes an entry, removes what has expired by Redis's own
//! clock, and returns the rest. It is sent again whenever the Redis has forgotten it.

use std::{collections::BTreeMap, time::Duration};

use fanfold_protocol::{Error, cluster::Member};
use redis::{RedisError, Script};
use tokio::time::Instant;

use super::MEMBERS_MAX;
use crate::redis_client::RedisClient;

/// How long an announcement counts unless it is repeated: two may get lost.
const LIFETIME: Duration = Duration::from_secs(3);

/// `KEYS[1]` the hash. `ARGV`: id or empty, member, lifetime in ms (0 removes it), members at most.
const SCRIPT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local key, id, lifetime = KEYS[1], ARGV[1], tonumber(ARGV[3])
local live, count = {}, 0
if id ~= '' and lifetime == 0 then redis.call('HDEL', key, id) end
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do
  local ends, member = string.match(all[i + 1], '^(%d+):(.*)$')
  if ends and tonumber(ends) > now then
    if all[i] ~= id then
      count = count + 1
      live[count] = member
    end
  else
    redis.call('HDEL', key, all[i])
  end
end
if id ~= '' and lifetime > 0 then
  if count >= tonumber(ARGV[4]) then return redis.error_reply('FULL there are too many members') end
  redis.call('HSET', key, id, string.format('%.0f', now + lifetime) .. ':' .. ARGV[2])
  redis.call('PEXPIRE', key, 60000)
  live[count + 1] = ARGV[2]
end
return live
";

/// Where announcements are.
#[derive(Debug)]
pub(super) enum Directory {
    Redis(Box<Redis>),
    Memory(BTreeMap<u64, (Instant, Member)>),
}

impl Directory {
    pub(super) fn memory() -> Self {
        Self::Memory(BTreeMap::new())
    }

    /// Announces a member; who is alive, by id.
    pub(super) async fn announce(&mut self, member: &Member) -> Result<Vec<Member>, Error> {
        match self {
            Self::Redis(redis) => {
                let json = serde_json::to_string(member);
                let json =
                    json.map_err(|e| Error::internal(format!("a member cannot be written as JSON: {e}")))?;
                redis.call(&member.id.to_string(), &json, LIFETIME).await
            }
            Self::Memory(known) => {
                known.insert(member.id, (Instant::now() + LIFETIME, member.clone()));
                Ok(live(known))
            }
        }
    }

    /// Takes a member off the list; who is alive, by id.
    pub(super) async fn withdraw(&mut self, id: u64) -> Result<Vec<Member>, Error> {
        match self {
            Self::Redis(redis) => redis.call(&id.to_string(), "", Duration::ZERO).await,
            Self::Memory(known) => {
                known.remove(&id);
                Ok(live(known))
            }
        }
    }

    /// Who is alive, by id.
    pub(super) async fn look(&mut self) -> Result<Vec<Member>, Error> {
        match self {
            Self::Redis(redis) => redis.call("", "", Duration::ZERO).await,
            Self::Memory(known) => Ok(live(known)),
        }
    }
}

fn live(known: &mut BTreeMap<u64, (Instant, Member)>) -> Vec<Member> {
    known.retain(|_, (ends, _)| *ends > Instant::now());
    known.values().map(|(_, member)| member.clone()).collect()
}

/// The hash in a Redis.
#[derive(Debug)]
pub(super) struct Redis {
    client: RedisClient,
    key: String,
    script: Script,
}

impl Redis {
    /// Asks nobody.
    pub(super) fn new(url: &str, namespace: &str) -> Result<Self, Error> {
        let (key, script) = (format!("ff:{{{namespace}}}:members"), Script::new(SCRIPT));
        Ok(Self { client: RedisClient::new(url)?, key, script })
    }

    async fn call(&mut self, id: &str, member: &str, lifetime: Duration) -> Result<Vec<Member>, Error> {
        let answer = match self.invoke(id, member, lifetime).await {
            Ok(answer) => answer,
            Err(e) => return Err(self.client.failed(&e)),
        };
        // What another version announces and this one does not understand is not there for this one.
        let mut members: Vec<Member> =
            answer.iter().filter_map(|json| serde_json::from_str(json).ok()).collect();
        members.sort_by_key(|member| member.id);
        Ok(members)
    }

    async fn invoke(
        &mut self,
        id: &str,
        member: &str,
        lifetime: Duration,
    ) -> Result<Vec<String>, RedisError> {
        let connection = self.client.connection().await?;
        let mut call = self.script.key(&self.key);
        let lifetime_ms = lifetime.as_millis() as u64;
        call.arg(id).arg(member).arg(lifetime_ms).arg(MEMBERS_MAX).invoke_async(connection).await
    }
}
