#!lua flags=no-writes
-- Ids that lie in some places, from the highest score down: of equal scores the newest first.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, number per place, then per place: name (ready, later, held, ended, dead), jobtype or sysid or nothing,
--          score and id before which to begin, or nothing twice
-- Returns  per place, flat: id, score
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(places · (number + (log rows)²))
--@include fail keys
local limit = number(ARGV[2], 'limit')
local FIRST, FIELDS = 3, 4

expect('later', 'ended', 'dead')

local function key_of(name, suffix)
  local key = name == 'ready' and ready_key(suffix) or name == 'held' and held_key(suffix) or K[name]
  if not key then
    fail('JQD_ARGUMENT', 'place')
  end
  expect_kind(key, name)
  return key
end

-- How many members come before (score, id): found by halving, for that member may be gone.
local function rank_of(key, score, id)
  local low, high = 0, redis.call('ZCARD', key)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local row = redis.call('ZRANGE', key, middle, middle, 'WITHSCORES')
    local its = tonumber(row[2])
    if its < score or its == score and row[1] < id then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local pages = {}
for at = FIRST, #ARGV, FIELDS do
  local key, before = key_of(ARGV[at], ARGV[at + 1]), ARGV[at + 3]
  local stop = before == '' and redis.call('ZCARD', key) or rank_of(key, number(ARGV[at + 2], 'score'), before)
  local found = {}
  if stop > 0 then
    local rows = redis.call('ZRANGE', key, math.max(0, stop - limit), stop - 1, 'WITHSCORES')
    for position = #rows - 1, 1, -2 do
      table.insert(found, rows[position])
      table.insert(found, rows[position + 1])
    end
  end
  table.insert(pages, found)
end
return pages
