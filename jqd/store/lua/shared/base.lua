-- What all other files use: keys, arguments, time, failing by name, and what a call has found out. This file comes
-- first. Each of the others has a table of its name (heads.lua: Heads) for what others use of it; all else in it is
-- local to it. `functions.py` joins them.
--
--     register(name, flags, work)  work() is the function of that name; flags: 'no-writes'; 'allow-oom': also on a full
--                                  server
--     K                            name → key, in the partition that is called; of a stem what stands before the rest
--                                  of the key
--     ARGV                         the arguments of this call
--     call                         what this call has found out or left to be written. Nothing else may change while it
--                                  runs: the next call would meet it. `starts` has functions: what a field is when it
--                                  is first read; without one it is nil
local K, ARGV, call
local starts = {}
local function empty() return {} end

-- Breaks off; scripts.py maps the name to an exception.
local function fail(name, detail)
  error({err = name .. ' ' .. detail})
end

-- JQD_WRONG_TYPE when a key has another type than we give it. That is asked when somebody looks who has the store
-- (look.lua); of a call that met one later it names that key, and what the call had written stays: the same call again,
-- when that key is gone, ends as if it had not been there (docs/build/STORE.md). Of a family those that end in a word
-- of this call. It is named, never the key: that may end in a user's bytes.
local function expect_ours()
  local WORDS = 100
  local function expect_kind(key, name)
    local kind = redis.call('TYPE', key)['ok']
    if kind ~= 'none' and kind ~= KINDS[name] then
      fail('JQD_WRONG_TYPE', name)
    end
  end
  for name in pairs(KINDS) do
    for at = 1, STEMS[name] and math.min(#ARGV, WORDS) or 1 do
      expect_kind(STEMS[name] and K[name] .. ARGV[at] or K[name], name)
    end
  end
end

local register
do
  local FACTS = {__index = function(found, name)
    local value = starts[name] and starts[name]()
    found[name] = value
    return value
  end}

  -- By what stands before all. A server has few partitions; of more, and of long prefixes, nothing is kept: `maxmemory`
  -- does not count it.
  local keys_by_prefix, kept, KEPT_MAX, PREFIX_MAX = {}, 0, 64, 256
  local function keys_of(prefix)
    local keys = keys_by_prefix[prefix]
    if not keys then
      keys = {}
      for name in pairs(KINDS) do
        keys[name] = prefix .. name .. (STEMS[name] and ':' or '')
      end
      if #prefix <= PREFIX_MAX and kept < KEPT_MAX then
        keys_by_prefix[prefix], kept = keys, kept + 1
      end
    end
    return keys
  end

  -- With room for what nearly all calls find out: a table that grows is copied each time.
  local function facts()
    return setmetatable({
      is_moved = false, has_rare = nil, early = nil, records = nil, moves = nil, ended = nil, watched = nil,
      taken = nil, told = nil, moved = nil, left = nil, has_left = nil,
      freed = nil, spelled = nil, spelling = nil, has_changes = nil, has_expiring = nil, has_linked = nil,
      has_keyed = nil,
    }, FACTS)
  end

  function register(name, flags, work)
    redis.register_function{function_name = name .. '_' .. DIGEST, flags = flags, callback = function(keys, arguments)
      K, ARGV, call = keys_of(keys[1]), arguments, facts()
      local good, answer = pcall(work)
      if not good then
        local said = tostring(type(answer) == 'table' and answer.err or answer)
        if said:find('^WRONGTYPE ') then
          expect_ours()
        end
        -- Valkey gives the text alone
        error(type(answer) == 'string' and said:find('^[%u_]+ ') and {err = said} or answer, 0)
      end
      return answer
    end}
  end
end

-- The table that is the first value of a text: of a row its header. One without anything, where that cannot be read.
local function unpacked(text)
  local good, _, value = pcall(cmsgpack.unpack_limit, text, 1, 0)
  return good and type(value) == 'table' and value or {}
end

local function ready_key(jobtype) return K.ready .. jobtype end
local function held_key(sysid) return K.held .. sysid end
local function shelf_key(tenant) return K.shelf .. tenant end

-- A number, or JQD_ARGUMENT.
local function number(text, what)
  return tonumber(text) or fail('JQD_ARGUMENT', what)
end

-- From there on the arguments are rows of so many, or JQD_ARGUMENT.
local function expect_rows(first, fields, what)
  if (#ARGV - first + 1) % fields ~= 0 then
    fail('JQD_ARGUMENT', what)
  end
end

-- Now in ms and µs: what the caller sent (tests), or Redis TIME when that is 0.
local function clock(text)
  local now_ms = number(text, 'now_ms')
  if now_ms > 0 then
    return now_ms, now_ms * 1000
  end
  local time = redis.call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  return math.floor(now_us / 1000), now_us
end

-- A whole number as text, exact up to 2^53. Functions spell one number again and again, and the server takes its time
-- for it.
local function digits(n)
  if n ~= call.spelled then
    call.spelled, call.spelling = n, string.format('%.0f', n)
  end
  return call.spelling
end

-- One command says that there is none of what many stores never have.
function starts.has_rare()
  return redis.call('EXISTS', K.paged, K.keyed, K.linked, K.links, K.expiring, K.tomb, K.deaths, K.generation, K.logs,
    K.leases, K.aged) > 0
end

-- Whether there is that key, one of those that nearly never are.
local function is_here(name) return call.has_rare and redis.call('EXISTS', K[name]) == 1 end
