-- Puts a piece of a large result, before the outcome that names it. Pieces that no outcome names in time are dropped.
-- ARGV     now_ms, name of the pieces, ms until they may be dropped, number of the piece, the piece
-- Returns  1
-- Errors   none
-- Cost     O(log spare), and the bytes
register('put_piece', {}, function()
  local now_ms, named, wait_ms, at, piece = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]

  redis.call('ZADD', K.spare, now_ms + wait_ms, named)  -- first, so that they are found if the server stops here
  redis.call('HSET', K.pieces .. named, at, piece)
  return 1
end)
