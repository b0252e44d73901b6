-- What a look is asked for. A wish is in ARGV: jobtype; or for any what stands before those of a tenant, nothing for
-- those of the tenant ""; the least priority and the most; number of jobtypes that are not meant by "any", and those.
local FIELDS, SEPARATOR = 4, '\31'  -- the latter stands behind the tenant in a jobtype

-- Whether a jobtype is one of that tenant.
function Wishes.is_of(tenant, jobtype)
  return tenant == '' and not jobtype:find(SEPARATOR, 1, true) or tenant ~= '' and jobtype:sub(1, #tenant) == tenant
end

-- From ARGV[first] on, calls for each wish named(jobtype, least, most), or any(tenant, least, most, besides, count of
-- those).
function Wishes.each(first, named, any)
  local at = first
  while at <= #ARGV do
    local jobtype, least, most = ARGV[at], number(ARGV[at + 1], 'min'), number(ARGV[at + 2], 'max')
    local count, besides = number(ARGV[at + 3], 'besides'), {}
    for place = at + FIELDS, at + FIELDS + count - 1 do
      besides[ARGV[place]] = true
    end
    if jobtype ~= '' and jobtype:sub(-1) ~= SEPARATOR then
      named(jobtype, least, most)
    else
      any(jobtype, least, most, besides, count)
    end
    at = at + FIELDS + count
  end
end
