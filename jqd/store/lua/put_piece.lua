-- Puts a piece of a large result, before the outcome that names it. What no outcome names by then goes.
-- ARGV     now_ms, name of the pieces, for how long (ms) they wait to be named, number of this one, the piece
-- Returns  1
-- Errors   JQD_ARGUMENT; none after the first write
-- Cost     O(log spare), and the bytes
register('put_piece', {}, function()
  local now_ms, named, wait_ms, at, piece = clock(ARGV[1]), ARGV[2], number(ARGV[3], 'wait_ms'),
    number(ARGV[4], 'at'), ARGV[5]

  redis.call('ZADD', K.spare, now_ms + wait_ms, named)  -- first: if the server stopped here they would be found
  redis.call('HSET', K.pieces .. named, at, piece)
  return 1
end)
