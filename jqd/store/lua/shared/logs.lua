-- What the last attempt of a job printed, up to 64 KiB of its end: lines that its worker sent while somebody watched,
-- and what came with its outcome. A later attempt replaces it, even if that printed nothing.
--
--     logs     hash  id → "\1<fence of the attempt> <bytes printed before> <text>"; lines end in a line feed
--     logged   zset  id → when (ms; negative for a success). The newest MAX successes and MAX others are kept
local MAX = 1000
local BYTES_MAX = 65536

-- While there is no log, a function asks the server once.
function starts.has_logs() return is_here('logs') end

local function drop(ids)
  redis.call('HDEL', K.logs, unpack(ids))
  redis.call('ZREM', K.logged, unpack(ids))
end

-- Returns of that attempt's log: how many bytes came before what is kept, and what is kept; nil if nothing is.
local function log_of(id, fence)
  local row = call.has_logs and redis.call('HGET', K.logs, id) or ''
  local known_fence, from, text = row:match('^\1(%d+) (%d+) (.*)$')
  if known_fence == digits(fence) then
    return tonumber(from), text
  end
end

-- Returns how many bytes of that attempt's log are known to be printed, or 0.
function Logs.printed(id, fence)
  local from, text = log_of(id, fence)
  return from and from + #text or 0
end

-- Adds text that begins after `from` printed bytes. Known bytes are skipped, so text may come twice. If bytes are
-- missing between, what was kept is dropped.
function Logs.add(id, fence, from, text, score)
  local before, known = log_of(id, fence)
  local ends = before and before + #known or 0
  if before and from + #text < ends then
    from, text = before, known
  elseif before and before < from and from <= ends then
    from, text = before, known .. text:sub(ends - from + 1)
  end
  if #text > BYTES_MAX then
    local first = text:find('\n', #text - BYTES_MAX, true)
    if not first or first == #text then  -- one line is longer than that: keep its end
      first = #text - BYTES_MAX
    end
    from, text = from + first, text:sub(first + 1)
  end
  redis.call('HSET', K.logs, id, '\1' .. digits(fence) .. ' ' .. digits(from) .. ' ' .. text)
  redis.call('ZADD', K.logged, score, id)
  call.has_logs = true
end

-- Keeps the log that came with an outcome.
function Logs.keep(outcome, has_succeeded)
  local score = has_succeeded and -outcome.date_ms or outcome.date_ms
  if outcome.log then
    Logs.add(outcome.id, outcome.fence, outcome.log_from, outcome.log, score)
  elseif call.has_logs then
    local row = redis.call('HGET', K.logs, outcome.id)
    if row and row:find('\1' .. digits(outcome.fence) .. ' ', 1, true) == 1 then
      redis.call('ZADD', K.logged, score, outcome.id)
    elseif row then
      drop({outcome.id})
    end
  end
end

-- Drops the oldest logs above MAX.
function Logs.trim()
  local successes = call.has_logs and redis.call('ZCOUNT', K.logged, '-inf', '(0') or 0
  if successes > MAX then
    drop(redis.call('ZRANGE', K.logged, '(0', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, successes - MAX))
  end
  local others = call.has_logs and redis.call('ZCOUNT', K.logged, 0, '+inf') or 0
  if others > MAX then
    drop(redis.call('ZRANGE', K.logged, 0, '+inf', 'BYSCORE', 'LIMIT', 0, others - MAX))
  end
end
