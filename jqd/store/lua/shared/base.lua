-- The names that all other files use. This file comes first in the library; `functions.py` joins them. Each other
-- file of lua/shared has a table of its name (index.lua: Index) for what others use of it; all else in it is local.
--
--     register(name, flags, work)  makes work() the function of that name; flags: 'no-writes'; 'allow-oom': it may run
--                                  on a full server
--     K                            name → key of the called partition; of a stem the part up to the colon
--     ARGV                         the arguments of this call
--     call                         all that changes while a call runs: what it found out, what is to be written. (A
--                                  local of a file would be there for the next call.) `starts.x()` makes call.x when
--                                  it is first read; without it that is nil
local K, ARGV, call
local starts = {}
local function empty() return {} end

-- Ends the call with a named error; scripts.py maps it to an exception.
local function fail(name, detail)
  error({err = name .. ' ' .. detail})
end

local register
do
  local FACTS = {__index = function(found, name)
    local value = starts[name] and starts[name]()
    found[name] = value
    return value
  end}

  -- The keys of a partition are made once. Few partitions are kept, and none with a long prefix, as `maxmemory` does
  -- not count this memory.
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

  -- Named here, so that the table has room for them: to grow it is to copy it.
  local function facts()
    return setmetatable({
      is_moved = false, has_rare = nil, early = nil, records = nil, moves = nil, ended = nil, watched = nil,
      taken = nil, new_records = nil, moved = nil, left = nil, has_left = nil,
      freed = nil, spelled = nil, spelling = nil, has_changes = nil, has_expiring = nil, has_linked = nil,
      has_keyed = nil,
    }, FACTS)
  end

  function register(name, flags, work)
    redis.register_function{function_name = name .. '_' .. DIGEST, flags = flags, callback = function(keys, arguments)
      K, ARGV, call = keys_of(keys[1]), arguments, facts()
      return work()
    end}
  end
end

-- Returns the table at the begin of a text, as the header of a row is; an empty one if it cannot be read.
local function unpacked(text)
  local good, _, value = pcall(cmsgpack.unpack_limit, text, 1, 0)
  return good and type(value) == 'table' and value or {}
end

local function ready_key(jobtype) return K.ready .. jobtype end
local function held_key(sysid) return K.held .. sysid end
local function shelf_key(tenant) return K.shelf .. tenant end

-- Returns the present ms and µs: what the caller sent (in tests), or Redis TIME if that is 0.
local function clock(text)
  local now_ms = tonumber(text)
  if now_ms > 0 then
    return now_ms, now_ms * 1000
  end
  local time = redis.call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  return math.floor(now_us / 1000), now_us
end

-- Spells a whole number, exact up to 2^53. The last one is kept, as functions spell one number again and again.
local function digits(n)
  if n ~= call.spelled then
    call.spelled, call.spelling = n, string.format('%.0f', n)
  end
  return call.spelling
end

-- One command for all that many stores never have: false if there is none of it.
function starts.has_rare()
  return redis.call('EXISTS', K.paged, K.keyed, K.linked, K.links, K.expiring, K.tombstones, K.deaths, K.generation,
    K.logs, K.leases, K.aged) > 0
end

-- Returns whether one of these keys exists.
local function is_here(name) return call.has_rare and redis.call('EXISTS', K[name]) == 1 end
