-- Returns what is to be done next for jobs that wait for others: new entries and those that rested, in turns; of more
-- than `limit` new ones the oldest and the newest. So entries that rest for a partition that is away are in nobody's
-- way. An entry that was taken is found again after `rest_ms`.
-- ARGV     now_ms, identity of the store, limit, children_max, rest_ms; then per entry with children that could not be
--          told: entry, how many untold children to skip
-- Returns  ms until more is due, or nothing; number of linked jobs; until when these entries rest, as `links` has it;
--          then per entry: the entry; of "w<id>": the row, and 1 if the job is blocked, 0 if it goes on or has ended
--          without having waited here; of "e<id>": how it ended, '' if it began anew, its jobtype, its stage (links),
--          how many children were skipped, 0 if those were all, ids of untold children. Ends that are not certain are
--          left out (watch_parents)
-- Errors   none
-- Cost     O(limit · (members + children_max + log children)), and the bytes of rows
register('take_links', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local identity = ARGV[2]
  local limit, children_max, rest_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local FIRST = 6
  local passed = {}
  for at = FIRST, #ARGV, 2 do
    passed[ARGV[at]] = tonumber(ARGV[at + 1])
  end

  local is_whole = Settled.is_settled(identity)
  local RESTED = 10 ^ 15  -- added to the date of an entry that was taken and rests
  local rest_until_ms = RESTED + now_ms + rest_ms
  local function is_blocked(id)
    return tonumber(redis.call('ZSCORE', K.later, id) or '0') >= Counts.BLOCKED_MS
  end

  local function drop(entry)
    redis.call('ZREM', K.links, entry)
    return false
  end

  local function waiting(entry, id)
    local row = redis.call('HGET', K.jobs, id)
    return row and {entry, row, is_blocked(id) and 1 or 0} or drop(entry)
  end

  local function ended(entry, id)
    local row = redis.call('HGET', K.jobs, id)
    local is_over = row and Move.has_ended(id)
    local stage = row and Links.stage_of(Change.began(id), is_over) or Links.STAGE_GONE
    local key = K.children .. id
    local untold = redis.call('ZCOUNT', key, 0, '(' .. digits(stage))
    local skip = passed[entry] or 0
    if skip >= untold then
      skip = 0
    end
    local last = math.min(skip + children_max, untold) - 1
    local children = untold > 0 and redis.call('ZRANGE', key, skip, last) or {}  -- untold ones have the lowest stages
    if not is_blocked(id) then
      redis.call('UNLINK', K.parents .. id)
    end
    if #children == 0 then
      return drop(entry)
    elseif is_over and not (is_whole and not Change.is_awaited(id, now_ms) and not Change.awaits_newer(id, row)) then
      return false  -- it is found again after it rested
    end
    local jobtype, how = '', 'gone'
    if row then
      jobtype, how = Stands.how_stands(id)
    end
    return {entry, (is_over or not row) and how or '', jobtype, digits(stage), skip, unpack(children)}
  end

  local BYTES = 512000  -- of rows in one answer, except for the first: a job with 10,000 parents has 300 kB
  local found, bytes = {}, 0

  local function in_turns(one, other)
    local both = {}
    for at = 1, limit do
      both[#both + 1] = one[at]
      both[#both + 1] = other[at]
    end
    return {unpack(both, 1, math.min(#both, limit))}
  end

  local function oldest(first, last, count)
    return redis.call('ZRANGE', K.links, first, last, 'BYSCORE', 'LIMIT', 0, count)
  end

  local new = oldest('-inf', now_ms, limit)
  if #new == limit then
    local half = math.floor(limit / 2)
    new = in_turns(redis.call('ZRANGE', K.links, now_ms, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, half), new)
  end
  local due = in_turns(new, oldest(digits(RESTED), digits(RESTED + now_ms), limit))
  -- the clock was set back
  for _, first in ipairs({rest_until_ms - RESTED, rest_until_ms}) do
    local last = first < RESTED and '(' .. digits(RESTED) or '+inf'
    for _, entry in ipairs(oldest('(' .. digits(first), last, limit - #due)) do
      due[#due + 1] = entry
    end
  end
  for _, entry in ipairs(due) do
    if bytes > BYTES then
      break
    end
    local id = entry:sub(2)
    redis.call('ZADD', K.links, digits(rest_until_ms), entry)
    local one = (entry:sub(1, 1) == 'w' and waiting or ended)(entry, id)
    if one then
      found[#found + 1] = one
      bytes = bytes + #one[2]
    end
  end
  local next_ms = redis.call('ZRANGE', K.links, 0, 0, 'WITHSCORES')[2]
  local rested = redis.call('ZRANGE', K.links, digits(RESTED), '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
  if rested then
    next_ms = math.min(tonumber(next_ms), tonumber(redis.call('ZSCORE', K.links, rested)) - RESTED)
  end
  return {next_ms and math.max(0, math.ceil(next_ms - now_ms)) or '',
    redis.call('ZCOUNT', K.linked, 0, '(' .. Links.MADE), digits(rest_until_ms), unpack(found)}
end)
