-- Settings: of each kind and name the highest revision stays, and of equal revisions the greater text.

-- Writes what a constraint limits, for limits.lua. After a change all buckets are looked at.
local function take_limits(member, packed)
  local name = member:match('^constraint%z(.*)$')
  local good, _, rule = pcall(cmsgpack.unpack_limit, packed, 1, 0)
  if not name or not good or type(rule) ~= 'table' then
    return
  end
  local body = rule[5]
  if type(body) == 'table' then
    local rate = type(body.rate) == 'table' and body.rate or {}
    local window_us = math.floor((rate.per_s or 0) * 1000000 + 0.5)
    local row = {rate.limit or 0, window_us, rate.burst or 0, body.concurrency or 0, body.until_ms or 0,
      body.rated_ms or rule[4] or 0, body.digest or 0}
    for at, value in ipairs(row) do
      row[at] = string.format('%.0f', tonumber(value) or 0)
    end
    redis.call('HSET', K.limits, name, table.concat(row, ' '))
  else
    redis.call('HDEL', K.limits, name)
  end
  Version.note_version()
  if redis.call('EXISTS', K.again) == 1 then
    redis.call('HSET', K.life, 'again', '1')
  elseif redis.call('EXISTS', K.due) == 1 then
    redis.call('RENAME', K.due, K.again)
  end
end

-- Notes that a view tells of a backed-off worker: a daemon that does not know the view gets no jobs.
local function note_back_offs(member, packed, number)
  local body = member:match('^view%z') and unpacked(packed)[5]
  for _, row in pairs(type(body) == 'table' and type(body.rows) == 'table' and body.rows or {}) do
    if type(row) == 'table' and row[1] == 'backed_off' then
      redis.call('HSET', K.life, 'backed_off', number)
      return
    end
  end
end

-- Takes a setting. Returns whether it counts now and did not before.
function Rules.take_rule(member, revision, packed, now_us)
  local row = redis.call('HGET', K.rules, member) or ''
  local number = tonumber(row:match('^(%d+):') or nil) or 0
  local new = revision .. ':' .. packed
  if tonumber(revision) > number or (tonumber(revision) == number and row ~= new and Order.before(row, new)) then
    local place = Sequence.next_in(K.ruled, now_us)
    redis.call('ZADD', K.ruled, place, member)
    redis.call('HSET', K.rules, member, new)
    take_limits(member, packed)
    note_back_offs(member, packed, place)
    return true
  end
  return false
end
