-- Jobs that wait for others, unique keys, and groups. Each end of a job with children is noted in `links` until all its
-- children were told; each blocked job is noted there until its parents were asked.
--
--     links      zset  "w<id>": ask the parents of this blocked job; "e<id>": tell the children that this job ended or
--                      began anew → when it is due; while somebody is at it, RESTED later (take_links)
--     linked     zset  ids of jobs that have children, parents or a unique key → 0: their ends are noted in `links`;
--                      MADE: not, for their children wait for nothing
--     children   zset  of a parent: id of a child → the last stage of the parent that it was told
--     parents    hash  of a child: id of a parent → "stage how", how it ended, '' while it has not; '#' → how many have
--                      ended; '@' → how many there are, once all are known; '=' → which parents (Flow.mark); "~" and
--                      an id → what a parent told that was not asked yet, or for which the child waits no more
--
-- A parent's *stage* is twice its generation (change.lua), plus 1 once it has ended. It only grows, so of two notes on
-- a parent that with the later stage counts, in any order; of one stage a success counts, for it may come late and
-- beats a failure or cancel. A deleted parent has the greatest stage: nothing can follow.
local NOT_TOLD = '9007199254740991'  -- the greatest stage: the child waits for nothing and is told nothing

-- Returns the id of a job given as "=" and its pusher's own id, nil if nobody has that; any other id as it is.
function Links.given_id(given)
  if given:sub(1, 1) ~= '=' then
    return given
  end
  return (redis.call('HGET', K.names, given:sub(2)) or ''):match('^%d+ (%S+) ')
end

-- Notes at parents that are here the jobs that they made.
function Links.note_made(parents, children)
  local linked = {}
  -- Nearly all have just ended, which one call tells; to read their rows would bring their arguments, too.
  local ended = #parents > 0 and redis.call('ZMSCORE', K.ended, unpack(parents)) or {}
  for place, parent in ipairs(parents) do
    if ended[place] or redis.call('HEXISTS', K.jobs, parent) == 1 then
      redis.call('ZADD', K.children .. parent, 'LT', NOT_TOLD, children[place])
      linked[#linked + 1], linked[#linked + 2] = Links.MADE, parent
    end
  end
  if #linked > 0 then
    redis.call('ZADD', K.linked, 'LT', unpack(linked))
  end
end

Links.STAGE_GONE = 9007199254740991
Links.MADE = 1

-- Returns the stage of a parent that was not deleted.
function Links.stage_of(generation, has_ended)
  return 2 * generation + (has_ended and 1 or 0)
end

do
  local ENDS_WELL = {succeeded = true, gone = true, [''] = true}

  local function note_another_failure(key)
    local rows = redis.call('HGETALL', key)
    for at = 1, #rows, 2 do
      local how = rows[at + 1]:match('^%d+ (.*)$')
      if how and not ENDS_WELL[how] and rows[at]:sub(1, 1) ~= '~' then
        redis.call('HSET', key, '!', rows[at])
        return
      end
    end
  end

  local function split(row)
    return (row or ''):match('^(%d+) (.*)$')
  end

  -- Notes at a child how a parent ended. `is_told`: by the parent, for which the child may wait no more.
  function Links.note_parent(child, parent, how, stage, is_told)
    local key = K.parents .. child
    local row, noted = unpack(redis.call('HMGET', key, parent, '~' .. parent))
    if is_told and not row then
      local told_stage = split(noted)
      if (tonumber(told_stage) or -1) < stage then
        redis.call('HSET', key, '~' .. parent, digits(stage) .. ' ' .. how)
      end
      return
    end
    if noted then
      redis.call('HDEL', key, '~' .. parent)
      local told_stage, told_how = split(noted)
      Links.note_parent(child, parent, told_how, tonumber(told_stage))
      row = redis.call('HGET', key, parent)
    end
    local known_stage, known = split(row)
    local is_mended = how == 'succeeded' and known and not ENDS_WELL[known] and tonumber(known_stage) == stage
    if known and not is_mended and (tonumber(known_stage) >= stage or how == 'gone' and known ~= '') then
      return
    end
    redis.call('HSET', key, parent, digits(stage) .. ' ' .. how)
    if how ~= '' and (known or '') == '' then
      redis.call('HINCRBY', key, '#', 1)
    elseif how == '' and (known or '') ~= '' then
      redis.call('HINCRBY', key, '#', -1)
    end
    if not ENDS_WELL[how] then
      redis.call('HSETNX', key, '!', parent)
    elseif known and not ENDS_WELL[known] and redis.call('HGET', key, '!') == parent then
      redis.call('HDEL', key, '!')
      note_another_failure(key)
    end
  end
end

-- Returns 1 when all parents of a child have ended, else 0; the first that did not succeed, or ''; and its '='.
function Links.has_parents_ended(child)
  local ended, all, failed, mark = unpack(redis.call('HMGET', K.parents .. child, '#', '@', '!', '='))
  return all and (ended or '0') == all and 1 or 0, failed or '', mark or ''
end

-- A job lost its unique key: it is linked no more if it was deleted.
function Links.leave_key(id)
  if id and redis.call('HEXISTS', K.jobs, id) == 0 then
    redis.call('ZREM', K.linked, id)
  end
end

-- Gives a unique key to another job.
function Links.give_key(key, known, id, holds, now_ms)
  Links.leave_key(known)
  redis.call('HSET', K.unique, key, id .. ' ' .. digits(now_ms) .. ' ' .. holds)
  redis.call('ZADD', K.linked, 0, id)
  redis.call('ZREM', K.groups, '\0' .. key)
end

-- Notes the unique keys of jobs that a journal brings: `count` times key, id, holds, from argument `at` on. Of two jobs
-- the later one has the key, for it was given when the earlier one had ended. A deleted job gets none.
function Links.learn_keys(at, count, now_ms)
  local FIELDS = 3
  for place = at, at + (count - 1) * FIELDS, FIELDS do
    local key, id = ARGV[place], ARGV[place + 1]
    local known = (redis.call('HGET', K.unique, key) or ''):match('^~?(%S+) ')
    if (not known or known <= id) and redis.call('HEXISTS', K.jobs, id) == 1 then
      Links.give_key(key, known, id, ARGV[place + 2], now_ms)
    end
  end
end

-- Drops the places in a group of pushes that died, even if the clock was ahead then. `key`: of the group.
function Links.give_up_places(key, keep_ms, now_ms)
  local function give_up(first, last)
    for _, token in ipairs(redis.call('ZRANGE', key, first, last, 'BYSCORE')) do
      redis.call('ZREM', key, token)
    end
  end
  give_up(digits(keep_ms - now_ms), '(0')
  give_up('-inf', digits(-keep_ms - now_ms))
end
