-- What the last failed attempt of a job printed. It goes with a later attempt that printed nothing, and with a success.
-- Needs keys. `logged` has the ids by when that was: of the newest MAX jobs it is kept, up to 64 KiB each.
-- Gives keep_log(id, log, now_ms), nothing for no log; trim_logs(). While there is none, the server is asked once per script and no more.
local keep_log, trim_logs
do
  local MAX = 1000
  local has_logs = redis.call('EXISTS', K.logs) == 1

  local function drop(ids)
    redis.call('HDEL', K.logs, unpack(ids))
    redis.call('ZREM', K.logged, unpack(ids))
  end

  function keep_log(id, log, now_ms)
    if log then
      redis.call('HSET', K.logs, id, log)
      redis.call('ZADD', K.logged, now_ms, id)
      has_logs = true
    elseif has_logs then
      drop({id})
    end
  end

  function trim_logs()
    local over = has_logs and redis.call('ZCARD', K.logged) - MAX or 0
    if over > 0 then
      drop(redis.call('ZRANGE', K.logged, 0, over - 1))
    end
  end
end
