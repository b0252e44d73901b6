-- What a look for jobtypes wants. A demand is, in ARGV: a jobtype, or for any type the part before those of a tenant
-- ('': the tenant ""); priority_min and priority_max; a number of jobtypes that "any" leaves out; these.
local FIELDS, SEPARATOR = 4, '\31'  -- SEPARATOR stands behind the tenant in a jobtype

-- Returns whether a jobtype is of that tenant.
function Demand.is_of(tenant, jobtype)
  return tenant == '' and not jobtype:find(SEPARATOR, 1, true) or tenant ~= '' and jobtype:sub(1, #tenant) == tenant
end

-- Calls for each demand, from ARGV[from] on: named(jobtype, least, most), or any(tenant, least, most, besides, count).
function Demand.each(from, named, any)
  local at = from
  while at <= #ARGV do
    local jobtype, least, most = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local count, besides = tonumber(ARGV[at + 3]), {}
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
