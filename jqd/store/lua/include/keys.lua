-- All keys of a partition by name. Needs KEYS in the order of NAMES in keys.py.
-- Gives K (name → key), ready_key(jobtype), held_key(sysid), and
-- expect(name …): fails with JQD_WRONG_TYPE unless each of those keys is absent or of its type. Call it before writing.
local K, KIND = {}, {}
for position, entry in ipairs({
  'jobs hash', 'ready zset', 'types zset', 'later zset', 'held zset', 'fence string', 'tries hash', 'ended zset',
  'dead zset', 'outcome hash', 'result hash', 'results zset', 'tomb zset', 'applied hash', 'members hash',
  'life hash', 'early hash', 'names hash', 'generation hash', 'asked hash', 'deaths hash', 'handlers hash',
}) do
  local name, kind = entry:match('^(%S+) (%S+)$')
  K[name], KIND[name] = KEYS[position], kind
end

local function ready_key(jobtype) return K.ready .. jobtype end
local function held_key(sysid) return K.held .. sysid end

-- The family of a key is named, never the key: it may end in a user's bytes.
local function expect_kind(key, name)
  local kind = redis.call('TYPE', key)['ok']
  if kind ~= 'none' and kind ~= KIND[name] then
    fail('JQD_WRONG_TYPE', name)
  end
end

local function expect(...)
  for _, name in ipairs({...}) do
    expect_kind(K[name], name)
  end
end
