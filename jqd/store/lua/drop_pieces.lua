-- Drops the pieces of a large result that is not kept after all, unless an outcome has named them.
-- ARGV     now_ms, name of the pieces
-- Returns  1
-- Errors   none
-- Cost     O(pieces)
register('drop_pieces', {'allow-oom'}, function()
  local named = ARGV[2]

  Results.drop_pieces(named)
  return 1
end)
