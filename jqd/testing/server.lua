-- What a library finds on the server, for functions that run in a test: `redis.call`, and so much of `cmsgpack` and `struct`
-- as ours use. The real ones are C. Given: the commands by name, and which of them answer with an array.
-- Returns load(source) → run(function's name, keys, arguments) → true and the answer, or false and the error.
local reads, writes, arrays = ...

-- An array comes as several values, a long one as a table.
local function packed(...)
  local first = ...
  return type(first) == 'table' and first or {...}
end

local function handlers(may_write)
  local known = {}
  for _, commands in ipairs(may_write and {reads, writes} or {reads}) do
    for name, command in pairs(commands) do
      known[name] = arrays[name] and function(...) return packed(command(...)) end or command
    end
  end
  local kind = known.TYPE
  known.TYPE = function(key) return {ok = kind(key)} end
  for _, name in ipairs({'HSCAN', 'ZSCAN'}) do
    local scan = known[name]
    known[name] = function(...)
      local found = scan(...)
      return {table.remove(found, 1), found}
    end
  end
  return setmetatable(known, {__index = function(_, name)
    error({err = 'ERR ' .. name .. ' is no command that this server has, or it writes in a function that says it does not'})
  end})
end

-- MessagePack, as far as the server knows it: no binary and no extension types.
local function at_end() error('Missing bytes in input.', 0) end

local function whole(text, at, size)
  if at + size - 1 > #text then
    at_end()
  end
  local number = 0
  for place = at, at + size - 1 do
    number = number * 256 + text:byte(place)
  end
  return number, at + size
end

local function signed(text, at, size)
  if (text:byte(at) or 0) < 0x80 then
    return whole(text, at, size)
  end
  local number = 0  -- what is missing to -1: near to 2^64 nothing is exact
  for place = at, at + size - 1 do
    number = number * 256 + 255 - (text:byte(place) or at_end())
  end
  return -1 - number, at + size
end

local function taken(text, at, size)
  if at + size - 1 > #text then
    at_end()
  end
  return text:sub(at, at + size - 1), at + size
end

local function real(text, at, size, exponent_bits, mantissa_bits)
  local bytes, behind = {}, at + size
  for place = 0, size - 1 do
    bytes[place + 1] = whole(text, at + place, 1)
  end
  local sign, high, rest = bytes[1] >= 128 and -1 or 1, bytes[1] % 128, mantissa_bits % 8
  local exponent = high * 2 ^ (exponent_bits - 7) + math.floor(bytes[2] / 2 ^ rest)
  local mantissa = bytes[2] % 2 ^ rest
  for place = 3, size do
    mantissa = mantissa * 256 + bytes[place]
  end
  local bias = 2 ^ (exponent_bits - 1) - 1
  if exponent == 2 * bias + 1 then
    return mantissa == 0 and sign / 0 or 0 / 0, behind
  elseif exponent == 0 then
    return sign * mantissa * 2 ^ (1 - bias - mantissa_bits), behind
  end
  return sign * (1 + mantissa / 2 ^ mantissa_bits) * 2 ^ (exponent - bias), behind
end

local decode

local function array(text, at, count)
  local rows = {}
  for place = 1, count do
    rows[place], at = decode(text, at)
  end
  return rows, at
end

local function map(text, at, count)
  local rows, key = {}, nil
  for _ = 1, count do
    key, at = decode(text, at)
    rows[key], at = decode(text, at)
  end
  return rows, at
end

local SIZES = {  -- by first byte: what follows
  [0xd9] = {taken, 1}, [0xda] = {taken, 2}, [0xdb] = {taken, 4},
  [0xdc] = {array, 2}, [0xdd] = {array, 4}, [0xde] = {map, 2}, [0xdf] = {map, 4},
}
local NUMBERS = {
  [0xcc] = {whole, 1}, [0xcd] = {whole, 2}, [0xce] = {whole, 4}, [0xcf] = {whole, 8},
  [0xd0] = {signed, 1}, [0xd1] = {signed, 2}, [0xd2] = {signed, 4}, [0xd3] = {signed, 8},
}

function decode(text, at)
  local first = text:byte(at) or at_end()
  at = at + 1
  if first < 0x80 then
    return first, at
  elseif first < 0x90 then
    return map(text, at, first - 0x80)
  elseif first < 0xa0 then
    return array(text, at, first - 0x90)
  elseif first < 0xc0 then
    return taken(text, at, first - 0xa0)
  elseif first >= 0xe0 then
    return first - 256, at
  elseif first == 0xc0 then
    return nil, at
  elseif first == 0xc2 or first == 0xc3 then
    return first == 0xc3, at
  elseif first == 0xca then
    return real(text, at, 4, 8, 23)
  elseif first == 0xcb then
    return real(text, at, 8, 11, 52)
  elseif NUMBERS[first] then
    return NUMBERS[first][1](text, at, NUMBERS[first][2])
  elseif SIZES[first] then
    local size, behind = whole(text, at, SIZES[first][2])
    return SIZES[first][1](text, behind, size)
  end
  error('Bad data format in input.', 0)
end

-- The first `limit` values from an offset on; before them where the rest begins, -1 when there is none.
local function unpack_limit(text, limit, offset)
  local found, count, at = {}, 0, offset + 1
  while count < limit and at <= #text do
    count = count + 1
    found[count], at = decode(text, at)
  end
  return at > #text and -1 or at - 1, unpack(found, 1, count)
end

local function expect_big_endian(format)
  if format ~= '>I4' then
    error('this server knows no format of struct but >I4')
  end
end

local function pack(format, number)
  expect_big_endian(format)
  local function byte(shift) return math.floor(number / 2 ^ shift) % 256 end
  return string.char(byte(24), byte(16), byte(8), byte(0))
end

local function unpack_number(format, text, at)
  expect_big_endian(format)
  return whole(text, at or 1, 4)
end

-- What functions find, but `redis`; a library finds nothing of it while it is loaded.
local BUILTINS = {
  cmsgpack = {unpack_limit = unpack_limit},
  struct = {pack = pack, unpack = unpack_number},
  string = string, table = table, math = math,
  pcall = pcall, error = error, type = type, tonumber = tonumber, tostring = tostring, unpack = unpack,
  ipairs = ipairs, pairs = pairs, select = select, setmetatable = setmetatable,
}

local function load(source)
  local functions, commands = {}, nil  -- the latter: of the function that runs
  local redis = {
    call = function(name, ...) return commands[name](...) end,
    pcall = function(name, ...)
      local good, answer = pcall(commands[name], ...)
      return good and answer or {err = tostring(answer)}
    end,
    register_function = function(given)
      local flags = table.concat(given.flags, ' ')
      functions[given.function_name] = {run = given.callback, commands = handlers(not flags:find('no-writes', 1, true))}
    end,
  }
  local globals = setmetatable({redis = redis}, {
    __index = function(_, name) error('Script attempted to access nonexistent global variable \'' .. name .. '\'') end,
    __newindex = function(_, name) error('Attempt to modify a readonly table: global variable \'' .. name .. '\'') end,
  })
  local library = assert(loadstring(source, 'library'))
  setfenv(library, globals)
  library()
  redis.register_function = nil
  for name, value in pairs(BUILTINS) do
    rawset(globals, name, value)
  end
  return function(name, keys, arguments)
    local called = functions[name]
    commands = called.commands
    return pcall(called.run, keys, arguments)
  end
end

return load
