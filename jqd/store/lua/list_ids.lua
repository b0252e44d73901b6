#!lua flags=no-writes
-- Ids that lie in some places, from the highest score down: of equal scores the newest first.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, number per place, then per place: name (ready, loose, later, held, ended, dead), jobtype or sysid or nothing,
--          score and id before which to begin, or nothing twice
-- Returns  per place, flat: id, score
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(places · (number + (log rows)²))
--@include fail keys order queues heads pages
local limit = number(ARGV[2], 'limit')
local FIRST, FIELDS = 3, 4

expect('later', 'ended', 'dead')

local function key_of(name, suffix)
  local key = name == 'ready' and ready_key(suffix) or name == 'held' and held_key(suffix) or name == 'loose' and K.loose .. suffix or K[name]
  if not key then
    fail('JQD_ARGUMENT', 'place')
  end
  expect_kind(key, name)
  return key
end

-- Appends what comes before (score, id) in a set, or last when that is nothing, until `found` has `limit` pairs.
local function append_before(found, key, score, id)
  local stop = id == '' and redis.call('ZCARD', key) or rank_of(key, score, id)
  local start = math.max(0, stop - limit + #found / 2)
  if stop > start then
    local rows = redis.call('ZRANGE', key, start, stop - 1, 'WITHSCORES')
    for position = #rows - 1, 1, -2 do
      table.insert(found, (rows[position]:match('^[^:]*')))
      table.insert(found, rows[position + 1])
    end
  end
end

local function paged_before(jobtype, score, id)
  local found, backlog = {}, backlog_key(jobtype)
  local rank = id == '' and redis.call('ZCARD', backlog) or rank_of(backlog, score, id)
  while rank > 0 and #found / 2 < limit do
    rank = rank - 1
    local first, priority = unpack(redis.call('ZRANGE', backlog, rank, rank, 'WITHSCORES'))
    expect_kind(page_key(first, jobtype), 'page')
    local ids = redis.call('LRANGE', page_key(first, jobtype), 0, -1)
    for at = #ids, 1, -1 do
      if #found / 2 < limit and (id == '' or precedes(tonumber(priority), ids[at], score, id)) then
        table.insert(found, ids[at])
        table.insert(found, priority)
      end
    end
  end
  return found
end

-- Two such lists as one.
local function merged(ones, others)
  local found, one, other = {}, 1, 1
  while #found / 2 < limit and (ones[one] or others[other]) do
    if not others[other]
        or ones[one] and precedes(tonumber(others[other + 1]), others[other], tonumber(ones[one + 1]), ones[one]) then
      table.insert(found, ones[one])
      table.insert(found, ones[one + 1])
      one = one + 2
    else
      table.insert(found, others[other])
      table.insert(found, others[other + 1])
      other = other + 2
    end
  end
  return found
end

local pages = {}
for at = FIRST, #ARGV, FIELDS do
  local name, suffix, before = ARGV[at], ARGV[at + 1], ARGV[at + 3]
  local score = before ~= '' and number(ARGV[at + 2], 'score') or 0
  local found = {}
  append_before(found, key_of(name, suffix), score, before)
  if name == 'ready' and paged_of(suffix) > 0 then
    expect_ready(suffix)
    found = merged(found, paged_before(suffix, score, before))
  end
  table.insert(pages, found)
end
return pages
