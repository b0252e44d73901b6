-- Ranges of a journal that were deleted before this life of the store had read them. Retention copies a job that has
-- not ended from such a range to the journal's end. If a job was here, a missing row says that it ended and was
-- deleted: its copy must not begin it anew. Field "<journal id>:gone" of `applied`: "from-to from-to", positions, none
-- of a journal that was brought here whole.
-- ranges; one comes with each loss of the store. Of more the two oldest become one: a copy is rather begun twice than
-- lost
local GONE_MAX = 8

local function gone_field(field) return field:match('^[^:]*') .. ':gone' end

starts.known_gone = empty
local function gone_of(field)
  if not call.known_gone[field] then
    local ranges = {}
    for from, to in (redis.call('HGET', K.applied, gone_field(field)) or ''):gmatch('(%d+)-(%d+)') do
      table.insert(ranges, {tonumber(from), tonumber(to)})
    end
    call.known_gone[field] = ranges
  end
  return call.known_gone[field]
end

-- The jobs of that part of a journal were here before the store's loss.
function Gone.note_gone(field, from, to)
  local ranges, texts = gone_of(field), {}
  table.insert(ranges, {tonumber(from), tonumber(to)})
  table.sort(ranges, function(one, other) return one[1] < other[1] end)
  if #ranges > GONE_MAX then
    ranges[1][2] = math.max(ranges[1][2], ranges[2][2])
    table.remove(ranges, 2)
  end
  for _, range in ipairs(ranges) do
    table.insert(texts, string.format('%.0f-%.0f', range[1], range[2]))
  end
  redis.call('HSET', K.applied, gone_field(field), table.concat(texts, ' '))
end

-- Whether a job at one of these positions was here; false when they are ''.
function Gone.was_here(field, first, last)
  local left = {tonumber(first), tonumber(last)}
  for _, range in ipairs(#left == 2 and gone_of(field) or {}) do
    for place = 1, 2 do
      local position = left[place]
      left[place] = position and not (range[1] <= position and position < range[2]) and position or false
    end
  end
  return (left[1] or left[2]) and true or false
end
