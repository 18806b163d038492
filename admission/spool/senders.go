package spool

// sender is what a kind of sender does about a delivery that failed. Sources:
// the senders' code and documentation, see docs/recovery.md.
type sender struct {
	label   string
	retries []Way  // after which it tries again by itself
	retry   string // how
	who     Who    // who brings a delivery back otherwise
	how     string
	api     string
	within  string
	sameID  bool
	note    string
}

var answered5xx = []Way{WayOverload, WaySpoolFull, WaySpoolDown, WayUpstream}

const (
	gitlabNote = "GitLab skips the hook after four failures in a row (1 min, doubling, at most a day) " +
		"and disables it at forty; a delivery that works resets that"
	gitlabHow = "a maintainer resends it, in the hook's list of events or by the API (five a minute); " +
		"refused when the hook's URL has changed"
	gitlabAPI = "POST /projects/{id}/hooks/{hook}/events/{event}/resend, " +
		"POST /groups/{id}/hooks/{hook}/events/{event}/resend"
)

var senders = map[string]sender{
	"github": {
		label: "GitHub.com",
		who:   ByScript, within: "3 days", sameID: true,
		how: "redeliver it by the API or in the hook's list of deliveries",
		api: "POST /repos/{owner}/{repo}/hooks/{hook}/deliveries/{delivery}/attempts, " +
			"POST /orgs/{org}/hooks/{hook}/deliveries/{delivery}/attempts, " +
			"POST /app/hook/deliveries/{delivery}/attempts",
	},
	"github-enterprise": {
		label: "GitHub Enterprise Server",
		who:   ByScript, within: "7 days", sameID: true,
		how: "redeliver it by the API or in the hook's list of deliveries; hooks of the whole instance only there",
		api: "the paths of github under /api/v3",
	},
	"gitlab-token": {
		label: "GitLab with a secret token",
		who:   ByScript, within: "7 days", sameID: true,
		how: gitlabHow, api: gitlabAPI, note: gitlabNote,
	},
	"gitlab-signed": {
		label: "GitLab with a signing token",
		who:   ByScript, within: "7 days", sameID: true,
		how: gitlabHow, api: gitlabAPI, note: gitlabNote,
	},
	"gitea": {
		label: "Gitea", who: ByOperator, within: "as long as the server keeps its hook tasks",
		how: "an administrator of the repository replays it on the hook's page; there is no API",
	},
	"forgejo": {
		label: "Forgejo", who: ByOperator, within: "as long as the server keeps its hook tasks",
		how: "an administrator of the repository replays it on the hook's page; there is no API",
	},
	"gogs": {
		label: "Gogs", who: ByOperator, within: "as long as the server keeps its hook tasks", sameID: true,
		how: "an administrator of the repository redelivers it on the hook's page; there is no API",
	},
	"bitbucket-cloud": {
		label: "Bitbucket Cloud", retries: answered5xx,
		retry: "it is sent up to two more times after a status from 500 to 599 (not after a time-out)",
		who:   ByOperator,
		how:   "resend it from the hook's request log, which must have been switched on before",
	},
	"bitbucket-dc": {
		label: "Bitbucket Data Center", who: ByOperator,
		how:  "cause the event again, for instance by pushing; the last exchange can be read by the API",
		api:  "GET /rest/api/latest/projects/{key}/repos/{slug}/webhooks/{hook}/latest",
		note: "five failures make it skip the hook for 10 s, growing to 10 h",
	},
	"azure-devops": {
		label: "Azure DevOps", retries: answered5xx,
		retry: "it is sent up to eight more times after 408, 502, 503 or 504, 1 s to 60 s apart (what it does after a time-out is not documented)",
		who:   ByOperator, within: "7 days",
		how:  "read it in the subscription's history and cause the event again",
		note: "other failures put the subscription on probation, 410 disables it",
	},
	"sourcehut": {
		label: "SourceHut (legacy API)", who: ByOperator,
		how: "redeliver it on the hook's page where the service offers that, else cause the event again",
	},
	"standard-webhooks": {
		label: "Standard Webhooks", retries: append([]Way{WayDeadline, WayRefused}, answered5xx...), sameID: true,
		retry: "the specification asks the sender to repeat it over days, with the same id and a new timestamp",
		who:   ByOperator, how: "ask the sender to repeat it",
	},
	"woodpecker-hook": {
		label: "Forge hooks made by Woodpecker", who: ByOperator,
		how: "redeliver it at the forge as its row says, or start the pipeline by hand; " +
			"such deliveries are never kept, because only the receiver can check their credential",
	},
	"generic": {
		label: "Any other sender", who: ByOperator,
		how: "cause the event again at the sender, unless it is known to repeat by itself",
	},
}
