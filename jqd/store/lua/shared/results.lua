-- Kept results. A small one is a row of `result`. A large one is put in pieces before, into a key of its own; its row
-- is "\193<name of its pieces> <bytes> <number of pieces>", which is no MessagePack. `large` says whose pieces they
-- are; pieces that nobody has are in `spare`, and purge drops them.
local AT_ONCE = 0  -- a date: spare pieces may go at once

-- Returns the name and number of the pieces of a row, nil if it has none.
function Results.pieces_in(row)
  local named, pieces = row:match('^\193(%S+) %d+ (%d+)$')
  return named, tonumber(pieces)
end

-- Fails unless all pieces were put.
function Results.expect_pieces(named, pieces)
  if not named then
    return
  end
  if redis.call('HLEN', K.pieces .. named) ~= pieces then
    fail('JQD_ARGUMENT', 'pieces')  -- the caller puts them again and repeats the call
  end
end

-- The name of pieces begins with the id of their job.
local function is_referred_to(named)
  local id = named:match('^[^:]*')
  local own, noted = unpack(redis.call('HMGET', K.large, id, 'z' .. id))
  return own == named or noted == named
end

-- Makes pieces spare, unless a job or a note has them.
function Results.let_go(named)
  if not is_referred_to(named) then
    redis.call('ZADD', K.spare, AT_ONCE, named)
  end
end

-- Drops pieces, unless a job or a note has them.
function Results.drop_pieces(named)
  if not is_referred_to(named) then
    redis.call('UNLINK', K.pieces .. named)
  end
  redis.call('ZREM', K.spare, named)
end

local function forget_pieces(owners)
  local known = redis.call('EXISTS', K.large) == 1 and redis.call('HMGET', K.large, unpack(owners)) or {}
  if #known > 0 then
    redis.call('HDEL', K.large, unpack(owners))
  end
  for _, named in ipairs(known) do
    if named then
      Results.let_go(named)
    end
  end
end

-- Keeps the result of a job or a note until `drop_at_ms`.
function Results.put(owner, row, drop_at_ms)
  if redis.call('HSET', K.result, owner, row) == 0 then
    forget_pieces({owner})  -- of an earlier result
  end
  redis.call('ZADD', K.results, drop_at_ms, owner)
  local named = Results.pieces_in(row)
  if named then
    redis.call('HSET', K.large, owner, named)
    redis.call('ZREM', K.spare, named)
  end
end

-- Drops the results of jobs and notes.
function Results.drop(owners)
  forget_pieces(owners)
  redis.call('HDEL', K.result, unpack(owners))
  redis.call('ZREM', K.results, unpack(owners))
end

-- Gives a note's result to its job.
function Results.give_to_job(note, id)
  local row, drop_at_ms = redis.call('HGET', K.result, note), redis.call('ZSCORE', K.results, note)
  if row and drop_at_ms then
    Results.put(id, row, drop_at_ms)
  end
end
