-- What all other files use: keys, arguments, time, failing by name, and what a call has found out. This file comes first.
-- Each of the others has a table of its name (heads.lua: Heads) for what others use of it; all else in it is local to it. `functions.py` joins them.
--
--     register(name, flags, work)  work() is the function of that name; flags: 'no-writes'; 'allow-oom': also on a full server
--     K                            name → key, in the partition that is called; of a stem what stands before the rest of the key
--     ARGV                         the arguments of this call
--     call                         what this call has found out or left to be written. Nothing else may change while it runs: the next call would meet it.
--                                  `starts` has functions: what a field is when it is first read; without one it is nil
--
-- Gives empty() → {}; fail(name, detail): scripts.py maps the name to an exception; number(text, what): a number or JQD_ARGUMENT; clock(text) → ms, µs: what the caller sent
-- (tests), or Redis TIME when that is 0; digits(n): a whole number as text, exact up to 2^53; ready_key(jobtype), held_key(sysid), shelf_key(tenant);
-- expect(name …): fails with JQD_WRONG_TYPE unless each of these keys is absent or of its type, before anything is written; expect_kind(key, name) → its type or 'none', unless
-- that was known: the same of one key of a family; expect_rare(name, …): whether that key is here, which nearly never is; then it and the others are expected.
local K, ARGV, call
local starts = {}
local function empty() return {} end

local register
do
  local FACTS = {__index = function(found, name)
    local value = starts[name] and starts[name]()
    found[name] = value
    return value
  end}

  -- By what stands before all. A server has few partitions; of more, and of long prefixes, nothing is kept: `maxmemory` does not count it.
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

  function register(name, flags, work)
    redis.register_function{function_name = name .. '_' .. DIGEST, flags = flags, callback = function(keys, arguments)
      K, ARGV, call = keys_of(keys[1]), arguments, setmetatable({}, FACTS)
      return work()
    end}
  end
end

local function ready_key(jobtype) return K.ready .. jobtype end
local function held_key(sysid) return K.held .. sysid end
local function shelf_key(tenant) return K.shelf .. tenant end

local function fail(name, detail)
  error({err = name .. ' ' .. detail})
end

local function number(text, what)
  return tonumber(text) or fail('JQD_ARGUMENT', what)
end

local function clock(text)
  local now_ms = number(text, 'now_ms')
  if now_ms > 0 then
    return now_ms, now_ms * 1000
  end
  local time = redis.call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  return math.floor(now_us / 1000), now_us
end

-- Functions spell one number again and again, and the server takes its time for it.
local function digits(n)
  if n ~= call.spelled then
    call.spelled, call.spelling = n, string.format('%.0f', n)
  end
  return call.spelling
end

-- The family of a key is named, never the key: it may end in a user's bytes.
-- What a call has looked at stays so: nobody else writes meanwhile.
local function expect_kind(key, name)
  local expected = call.expected
  if expected[key] then
    return
  end
  local kind = redis.call('TYPE', key)['ok']
  if kind ~= 'none' and kind ~= KINDS[name] then
    fail('JQD_WRONG_TYPE', name)
  end
  expected[key] = true
  return kind
end

local function expect(...)
  for _, name in ipairs({...}) do
    expect_kind(K[name], name)
  end
end

-- One command says that there are no pages, keyed queues, jobs that expire, nor any that have to do with others.
local RARE = {'has_pages', 'has_keyed', 'has_linked', 'has_expiring'}
function starts.has_rare() return redis.call('EXISTS', K.paged, K.keyed, K.linked, K.links, K.expiring) > 0 end

local function expect_rare(name, ...)
  local is_here = call.has_rare and redis.call('EXISTS', K[name]) == 1
  if is_here then
    expect(name, ...)
  end
  return is_here
end

function starts.expected()
  call.expected = {}
  for _, name in ipairs(call.has_rare and RARE or {}) do
    local _ = call[name]  -- expects the types of what is here, before anything is written
  end
  return call.expected
end
