-- Returns jobs with their parents and children, then jobs that are linked with them, the nearest first: so a chain is
-- walked in few calls.
-- ARGV     1    now_ms
--          2    identity of the store
--          3    number of children to be listed of each
--          4    how many children to skip
--          5    how many more jobs may be found
--          6    number of ids that are known and not returned again
--          then these
--          then ids, or "=" and own ids
-- Returns  how many of the given ids it looked at; the others are for the next call; then per id: id, its row without
--          its argument, its state, number of its attempts, a present one included, how many children it has, their
--          ids, its generation (change), when (ms) it ended, up to which generation it was cancelled, or nothing; nil
--          for what is not here; then the same for each job that was found
-- Errors   JQD_STORE_CHANGED, JQD_UNSETTLED: a journal may have a job with a given own id
-- Cost     O((ids + found) · (members + children listed + parents)) and the bytes of their rows: about LINKS, but for
--          one job
register('list_links', {'no-writes'}, function()
  local identity = ARGV[2]
  local most, skip = tonumber(ARGV[3]), tonumber(ARGV[4])
  local reach, known = tonumber(ARGV[5]), tonumber(ARGV[6])
  local FIRST, FLOW = 7, 14  -- place in a row's header
  -- what is no own id, nearly always: else it is not found from here
  local ID = '^[0-7]' .. ('[0-9A-Z]'):rep(25) .. '$'
  local LINKS = 4000  -- jobs, children and parents in one call: 2 ms, mostly for reading names of parents out of rows
  local A_LINK = 512  -- bytes of rows that cost as much as a link

  Life.expect_life(identity)

  local met, found, links = {}, {}, 0
  for at = FIRST, FIRST + known - 1 do
    met[ARGV[at]] = true
  end

  local function meet(id)
    if id and not met[id] then
      met[id] = true
      found[#found + 1] = id
    end
  end

  -- Returns what is known of a job; nil: it is not here. Meets its parents and children.
  local function describe(id)
    local row = redis.call('HGET', K.jobs, id)
    if not row then
      return nil
    end
    local key = K.children .. id
    local good, behind, fields = pcall(cmsgpack.unpack_limit, row, 1, 0)
    local tries = redis.call('HGET', K.tries, id)
    local children = most > 0 and redis.call('ZRANGE', key, skip, skip + most - 1) or {}
    local flow = good and type(fields) == 'table' and type(fields[FLOW]) == 'table' and fields[FLOW] or {}
    local parents = type(flow.after) == 'table' and flow.after or {}
    links = links + 1 + #children + #parents + (#row + (tries and #tries or 0)) / A_LINK
    for at = 1, math.min(#children, reach - #found) do
      meet(children[at])
    end
    for at = 1, math.min(#parents, reach - #found) do
      local parent = type(parents[at]) == 'string' and parents[at]  -- else whoever reads the row reports the fault
      meet(parent and Links.given_id(parent:find(ID) and parent or '=' .. parent))
    end
    if #found < reach then
      meet(type(flow.parent) == 'string' and flow.parent)
    end
    local _, how = Stands.how_stands(id, true)
    local failed = tries and #tries >= 4 and struct.unpack('>I4', tries) or 0
    local attempts = how == 'running' and failed + 1
      or math.max(failed, Stands.attempt_in(redis.call('HGET', K.outcome, id)))
    return {
      id, good and behind > 0 and row:sub(1, behind) .. '\192' or row, how, attempts,
      redis.call('ZCARD', key), children, (redis.call('HGET', K.generation, id) or ''):match(':(%d+)') or '',
      Move.has_ended(id) or '', redis.call('HGET', K.generation, 'c' .. id) or '',
    }
  end

  local answer = {0}
  for at = FIRST + known, #ARGV do
    if links > LINKS then
      return answer
    end
    local id = Links.given_id(ARGV[at])
    if not id then
      Settled.expect_settled(identity)
    else
      met[id] = true
    end
    answer[#answer + 1] = id and describe(id) or false
    answer[1] = answer[1] + 1
  end
  local at = 0
  while at < #found and links <= LINKS do
    at = at + 1
    answer[#answer + 1] = describe(found[at])
  end
  return answer
end)
