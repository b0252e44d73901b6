-- All keys of a partition by name. Needs KEYS in the order of NAMES in keys.py.
-- Gives K (name → key), ready_key(jobtype), held_key(sysid), shelf_key(tenant), and
-- expect(name …): fails with JQD_WRONG_TYPE unless each of those keys is absent or of its type. Call it before writing;
-- has_rare(): whether pages, keyed queues or jobs that have to do with others may be there. Nearly always none is, and one call says so.
-- Spelled out, for this runs with every call.
local K = {
  jobs = KEYS[1], ready = KEYS[2], types = KEYS[3], later = KEYS[4], held = KEYS[5], fence = KEYS[6], tries = KEYS[7],
  ended = KEYS[8], dead = KEYS[9], outcome = KEYS[10], result = KEYS[11], results = KEYS[12], tomb = KEYS[13],
  applied = KEYS[14], members = KEYS[15], life = KEYS[16], early = KEYS[17], names = KEYS[18], generation = KEYS[19],
  asked = KEYS[20], deaths = KEYS[21], rules = KEYS[22], backlog = KEYS[23], page = KEYS[24], paged = KEYS[25],
  heads = KEYS[26], leases = KEYS[27], beats = KEYS[28], ruled = KEYS[29], alive = KEYS[30],
  logs = KEYS[31], logged = KEYS[32], counts = KEYS[33], outbox = KEYS[34],
  keyed = KEYS[35], queues = KEYS[36], parked = KEYS[37], aside = KEYS[38],
  limits = KEYS[39], due = KEYS[40], again = KEYS[41], spent = KEYS[42], busy = KEYS[43], limited = KEYS[44],
  expiring = KEYS[45], aged = KEYS[46], shelf = KEYS[47], shelves = KEYS[48], loose = KEYS[49],
  kept = KEYS[50], watched = KEYS[51], pieces = KEYS[52], large = KEYS[53], spare = KEYS[54],
  links = KEYS[55], linked = KEYS[56], children = KEYS[57], parents = KEYS[58], groups = KEYS[59], grouped = KEYS[60], unique = KEYS[61],
  notices = KEYS[62], history = KEYS[63], historic = KEYS[64],
}

local function ready_key(jobtype) return K.ready .. jobtype end
local function held_key(sysid) return K.held .. sysid end
local function shelf_key(tenant) return K.shelf .. tenant end

local expect_kind, expect
do
  local KIND = {
    jobs = 'hash', ready = 'zset', types = 'zset', later = 'zset', held = 'zset', fence = 'string', tries = 'hash',
    ended = 'zset', dead = 'zset', outcome = 'hash', result = 'hash', results = 'zset', tomb = 'zset', applied = 'hash',
    members = 'hash', life = 'hash', early = 'hash', names = 'hash', generation = 'hash', asked = 'hash', deaths = 'hash',
    rules = 'hash', backlog = 'zset', page = 'list', paged = 'hash', heads = 'zset', leases = 'hash', beats = 'zset',
    ruled = 'zset', alive = 'zset', logs = 'hash', logged = 'zset', counts = 'hash', outbox = 'zset',
    keyed = 'hash', queues = 'zset', parked = 'hash',
    aside = 'zset', limits = 'hash', due = 'zset', again = 'zset', spent = 'list', busy = 'zset', limited = 'hash',
    expiring = 'zset', aged = 'zset', shelf = 'zset', shelves = 'zset', loose = 'zset', kept = 'hash',
    watched = 'zset', pieces = 'hash', large = 'hash', spare = 'zset', links = 'zset', linked = 'zset', children = 'zset', parents = 'hash',
    groups = 'zset', grouped = 'zset', unique = 'hash', notices = 'string', history = 'hash', historic = 'zset',
  }

  -- The family of a key is named, never the key: it may end in a user's bytes.
  -- What a script has looked at stays so: nobody else writes meanwhile.
  local expected = {}
  function expect_kind(key, name)
    if expected[key] then
      return
    end
    local kind = redis.call('TYPE', key)['ok']
    if kind ~= 'none' and kind ~= KIND[name] then
      fail('JQD_WRONG_TYPE', name)
    end
    expected[key] = true
    return kind
  end

  function expect(...)
    for _, name in ipairs({...}) do
      expect_kind(K[name], name)
    end
  end
end

local has_rare
do
  local known
  function has_rare()
    if known == nil then
      known = redis.call('EXISTS', K.paged, K.keyed, K.linked, K.links) > 0
    end
    return known
  end
end
