-- Ranges of a journal that were deleted before this life of the store had read them. Before that, retention copies jobs
-- that have not ended to the journal's end. If a job was here, a missing row means that it ended: its copy must not
-- begin it anew. So a copy is new only if both its places were in such ranges.
--
-- Field "<journal id>:gone" of `applied`: "from-to from-to", positions; none if the journal was read whole.
-- ranges, one for each loss of the store; above, the two oldest become one: a job is rather begun twice than lost
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

-- Notes that a part of a journal was deleted unread.
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

-- Returns whether a job at one of these positions was here; false if they are ''.
function Gone.was_here(field, first, last)
  local outside = {tonumber(first), tonumber(last)}
  for _, range in ipairs(#outside == 2 and gone_of(field) or {}) do
    for place = 1, 2 do
      local position = outside[place]
      outside[place] = position and not (range[1] <= position and position < range[2]) and position or false
    end
  end
  return (outside[1] or outside[2]) and true or false
end
