-- What the last attempt of a job printed, up to 64 KiB of its end: lines that its worker sent while somebody watched,
-- and what came with its outcome. It goes with a later attempt that printed nothing. A row of `logs` is "\1<fence of
-- the attempt> <bytes printed before> <text>", and lines end in a line feed; without that head it is an earlier jqd's.
-- `logged` has the ids by when that was, of successes below 0: of the newest MAX of them it is kept, and of the newest
-- MAX others.
local MAX = 1000
local BYTES_MAX = 65536

-- While there is none, the server is asked once per function and no more.
function starts.has_logs() return is_here('logs') end

local function drop(ids)
  redis.call('HDEL', K.logs, unpack(ids))
  redis.call('ZREM', K.logged, unpack(ids))
end

-- Of that attempt: bytes before what is known, and that; nil for none.
local function log_of(id, fence)
  local row = call.has_logs and redis.call('HGET', K.logs, id) or ''
  local its, from, text = row:match('^\1(%d+) (%d+) (.*)$')
  if its == digits(fence) then
    return tonumber(from), text
  end
end

-- How many bytes of that attempt were printed as far as is known, or 0.
function Logs.printed(id, fence)
  local from, text = log_of(id, fence)
  return from and from + #text or 0
end

-- Adds the bytes from there on. What is known already is passed over, so it may come twice. Where some is missing in
-- between, what was before that goes.
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
    if not first or first == #text then  -- of a line longer than that its end is kept
      first = #text - BYTES_MAX
    end
    from, text = from + first, text:sub(first + 1)
  end
  redis.call('HSET', K.logs, id, '\1' .. digits(fence) .. ' ' .. digits(from) .. ' ' .. text)
  redis.call('ZADD', K.logged, score, id)
  call.has_logs = true
end

-- Keeps what an attempt printed, of an outcome.
function Logs.keep(one, has_succeeded)
  local score = has_succeeded and -one.date_ms or one.date_ms
  if one.log then
    Logs.add(one.id, one.fence, one.log_from, one.log, score)
  elseif call.has_logs then
    local row = redis.call('HGET', K.logs, one.id)
    if row and row:find('\1' .. digits(one.fence) .. ' ', 1, true) == 1 then
      redis.call('ZADD', K.logged, score, one.id)
    elseif row then
      drop({one.id})
    end
  end
end

-- Drops what is too much.
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
