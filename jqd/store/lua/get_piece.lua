-- Returns a piece of a large result.
-- ARGV     now_ms, name of the pieces, number of the piece
-- Returns  the piece; nil when it was dropped
-- Errors   none
-- Cost     the bytes
register('get_piece', {'no-writes'}, function()
  local named, at = ARGV[2], ARGV[3]

  return redis.call('HGET', K.pieces .. named, at)
end)
