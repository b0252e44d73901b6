#!lua flags=allow-oom
-- Deletes jobs that have ended, dead ones too, with all that is known of them.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, then ids
-- Returns  those that were there and had ended
-- Errors   JQD_WRONG_TYPE; none after the first write
-- Cost     O(ids · log ended)
--@include fail keys now order pages holder move early change delete
local FIRST = 2

expect_deletable()
expect('dead')
local gone = {}
for at = FIRST, #ARGV do
  if has_ended(ARGV[at]) then
    table.insert(gone, ARGV[at])
  end
end
delete_jobs(gone)
return gone
