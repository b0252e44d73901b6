-- Deletes jobs that have ended, failed ones too, with all that is known of them.
-- ARGV     now_ms, identity of the store, then ids
-- Returns  number of ids that were looked at, the first ones; then which of them are deleted: they had ended
-- Errors   JQD_UNSETTLED while the store is being restored; none after the first write
-- Cost     O(ids · log ended), and bytes of rows, some megabytes at most
register('delete_dead', {'allow-oom'}, function()
  local now_ms, FIRST = clock(ARGV[1]), 3

  Settled.expect_told(ARGV[2], now_ms)
  local ids = {unpack(ARGV, FIRST)}
  local gone, looked = Delete.delete_free(ids, now_ms, true)
  return {looked, unpack(gone)}
end)
