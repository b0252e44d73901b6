#!lua flags=allow-oom
-- Notes that jobs under reserved names are in a journal: they will come, so the same push again is a duplicate.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, then per job: name, id, digest, revision, 1 when it was to
--          replace what stood there
-- Returns  per job: 1 when it stands under its name, or did until it was replaced; 0 when another content has the name
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_ARGUMENT; none after the first write
-- Cost     O(names)
--@include fail keys life
local FIRST, FIELDS = 3, 5

expect('names', 'life')
expect_life(ARGV[2])
if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  fail('JQD_ARGUMENT', 'names')
end

-- The greatest revision wins, as it does when both are applied; but where a later one is only reserved and is the same
-- content, this one is in a journal, and that may never be.
local function stands(name, id, digest, revision, replaces)
  local row = redis.call('HGET', K.names, name) or ''
  local later, named, until_ms, known = row:match('^(%d+) (%S+) (%d+) (%S*)$')
  if not later or tonumber(later) <= revision or (named == id and known == digest and until_ms ~= '0') then
    redis.call('HSET', K.names, name, string.format('%.0f', revision) .. ' ' .. id .. ' 0 ' .. digest)
    return 1
  end
  return named == id and until_ms == '0' and (known == digest or replaces) and 1 or 0
end

local answer = {}
for at = FIRST, #ARGV, FIELDS do
  table.insert(answer, stands(ARGV[at], ARGV[at + 1], ARGV[at + 2], number(ARGV[at + 3], 'revision'), ARGV[at + 4] == '1'))
end
return answer
