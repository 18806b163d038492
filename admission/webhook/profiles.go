package webhook

import "time"

// Shapes shared by several rows.
var (
	forgeEvent  = text(setOf("az09", "_"), 1, 64)
	gitlabEvent = text(setOf("azAZ", " "), 1, 64)
	number      = text(digitSet, 1, 20)
	standardID  = text(setOf("azAZ09", "_:-"), 1, 255)
	unixSeconds = text(digitSet, 1, 11)
	secretToken = text(visible, 1, 512)
	sha256Hub   = hexDigest("sha256=", 64)
	sha1Hub     = hexDigest("sha1=", 40)
	sha256Bare  = hexDigest("", 64)
)

var (
	hubSHA1      = companion{rule: rule{"X-Hub-Signature", sha1Hub}, prefix: "sha1=", sha1: true}
	hubSame      = companion{rule: rule{"X-Hub-Signature-256", sha256Hub}, prefix: "sha256=", sameDigest: true}
	gogsSame     = companion{rule: rule{"X-Gogs-Signature", sha256Bare}, sameDigest: true}
	giteaSame    = companion{rule: rule{"X-Gitea-Signature", sha256Bare}, sameDigest: true}
	fullName     = []path{{"repository", "full_name"}}
	gitlabPath   = []path{{"project", "path_with_namespace"}}
	restAttempts = "repository or organisation owner, or a script: REST POST …/hooks/{hook_id}/deliveries/{delivery_id}/attempts"
	gitlabResend = "maintainer or a script: POST …/hooks/{hook_id}/events/{hook_event_id}/resend, five a minute, 7 days"
)

// profiles is the whole difference between senders.
var profiles = []*Profile{
	githubProfile("github", "GitHub.com", restAttempts+", 3 days"),
	githubProfile("github-enterprise", "GitHub Enterprise Server", restAttempts+", 7 days",
		rule{"X-Github-Enterprise-Version", text(visible, 1, 64)},
		rule{"X-Github-Enterprise-Host", text(visible, 1, 255)}),
	forgeProfile("gitea", "Gitea", shortDeadline, []companion{gogsSame, hubSame, hubSHA1},
		optionalEvent("Gitea"), rule{"X-Gitea-Hook-Installation-Target-Type", text(setOf("az", ""), 1, 32)}),
	forgeProfile("forgejo", "Forgejo", shortDeadline, []companion{giteaSame, gogsSame, hubSame, hubSHA1},
		optionalEvent("Forgejo"), rule{"X-Gitea-Delivery", uuid}, rule{"X-Gitea-Event", forgeEvent}),
	forgeProfile("gogs", "Gogs", longDeadline, nil),
	{
		Name: "gitlab-token", Label: "GitLab, secret token", Auth: Token,
		MaxBody: MaxBody, Deadline: longDeadline,
		Retries: "none; hook disabled after repeated failures", Recover: gitlabResend,
		canonical:  rule{"X-Gitlab-Token", secretToken},
		companions: []companion{{rule: rule{"Webhook-Signature", anything}}},
		required:   []rule{{"X-Gitlab-Event", gitlabEvent}},
		optional:   gitlabOptional(),
		id:         source{header: "Idempotency-Key"}, event: source{header: "X-Gitlab-Event"},
		repository: gitlabPath,
	},
	{
		Name: "gitlab-signed", Label: "GitLab, signing token", Auth: Standard,
		MaxBody: MaxBody, Deadline: longDeadline, Tolerance: 300 * time.Second,
		Retries: "none; hook disabled after repeated failures", Recover: gitlabResend,
		canonical:  rule{"Webhook-Signature", standardList},
		companions: []companion{{rule: rule{"X-Gitlab-Token", secretToken}}},
		required:   []rule{{"X-Gitlab-Event", gitlabEvent}, {"Webhook-Id", standardID}, {"Webhook-Timestamp", unixSeconds}},
		optional:   gitlabOptional()[:3],
		id:         source{header: "Webhook-Id"}, event: source{header: "X-Gitlab-Event"},
		repository: gitlabPath,
	},
	bitbucketProfile("bitbucket-cloud", "Bitbucket Cloud", 256<<10, "X-Request-Uuid",
		"sender, up to twice after a 5xx; then the request log of the web interface",
		rule{"X-Hook-Uuid", looseUUID}, rule{"X-Request-Uuid", looseUUID}, rule{"X-Attempt-Number", text(digitSet, 1, 3)}),
	bitbucketProfile("bitbucket-dc", "Bitbucket Data Center", MaxBody, "X-Request-Id",
		"operator; the sender skips the hook for 10 s to 10 h after five failures",
		rule{"X-Request-Id", uuid}, rule{"Authorization", basicValue(512)}),
	{
		Name: "azure-devops", Label: "Azure DevOps", Auth: Basic,
		MaxBody: MaxBody, Deadline: longDeadline,
		Retries: "up to eight times after 408, 502, 503, 504", Recover: "sender; then the subscription's history",
		canonical: rule{"Authorization", basicValue(maxHeaderValue)},
		id:        source{member: "id"}, event: source{member: "eventType"},
	},
	{
		Name: "sourcehut", Label: "SourceHut, legacy webhooks", Auth: Ed25519,
		MaxBody: mib, Deadline: longDeadline,
		Retries: "not documented", Recover: "redelivery by the sender's operator",
		canonical: rule{"X-Payload-Signature", ed25519Value},
		required: []rule{{"X-Payload-Nonce", text(visible, 1, 128)}, {"X-Webhook-Event", text(visible, 1, 64)},
			{"X-Webhook-Delivery", uuid}},
		nonce: "X-Payload-Nonce",
		id:    source{header: "X-Webhook-Delivery"}, event: source{header: "X-Webhook-Event"},
	},
	{
		Name: "standard-webhooks", Label: "Standard Webhooks", Auth: Standard,
		MaxBody: MaxBody, Deadline: longDeadline, Tolerance: 300 * time.Second,
		Retries: "sender-defined, over days", Recover: "sender",
		canonical: rule{"Webhook-Signature", standardList},
		required:  []rule{{"Webhook-Id", standardID}, {"Webhook-Timestamp", unixSeconds}},
		id:        source{header: "Webhook-Id"}, event: source{member: "type"},
	},
	woodpeckerProfile("woodpecker-hook", "Woodpecker, access_token in the query", "access_token"),
	woodpeckerProfile("woodpecker-hook-gitlab", "Woodpecker, token in X-Gitlab-Token", ""),
}

func githubProfile(name, label, recover string, more ...rule) *Profile {
	return &Profile{
		Name: name, Label: label, Auth: HMAC,
		MaxBody: MaxBody, MaxBodyForm: MaxBodyForm, Deadline: longDeadline,
		Retries: "none", Recover: recover,
		canonical: rule{"X-Hub-Signature-256", sha256Hub}, algorithm: SHA256, prefix: "sha256=",
		companions: []companion{hubSHA1},
		required:   []rule{{"X-Github-Event", forgeEvent}, {"X-Github-Delivery", uuid}},
		optional: append([]rule{{"X-Github-Hook-Id", number}, {"X-Github-Hook-Installation-Target-Id", number},
			{"X-Github-Hook-Installation-Target-Type", text(lowerWord, 1, 32)}}, more...),
		id: source{header: "X-Github-Delivery"}, event: source{header: "X-Github-Event"},
		repository: fullName,
	}
}

// forgeProfile is a row of the Gogs family: bare hexadecimal digests over the
// JSON payload, whatever the encoding of the body.
func forgeProfile(name, label string, deadline time.Duration, companions []companion, more ...rule) *Profile {
	brand := map[string]string{"gitea": "X-Gitea-", "forgejo": "X-Forgejo-", "gogs": "X-Gogs-"}[name]
	optional := []rule{{"X-Github-Delivery", uuid}, {"X-Github-Event", forgeEvent}}
	if name != "gogs" {
		optional = append(optional, rule{"X-Gogs-Delivery", uuid}, rule{"X-Gogs-Event", forgeEvent})
	}
	return &Profile{
		Name: name, Label: label, Auth: HMAC,
		MaxBody: MaxBody, MaxBodyForm: MaxBodyForm, Deadline: deadline,
		Retries: "none", Recover: "hook owner: the web interface's replay button; there is no API",
		canonical: rule{brand + "Signature", sha256Bare}, algorithm: SHA256, payload: true,
		companions: companions,
		required:   []rule{{brand + "Event", forgeEvent}, {brand + "Delivery", uuid}},
		optional:   append(optional, more...),
		id:         source{header: brand + "Delivery"}, event: source{header: brand + "Event"},
		repository: fullName,
	}
}

func optionalEvent(brand string) rule { return rule{"X-" + brand + "-Event-Type", forgeEvent} }

func gitlabOptional() []rule {
	return []rule{{"X-Gitlab-Webhook-Uuid", uuid}, {"X-Gitlab-Event-Uuid", uuid},
		{"Idempotency-Key", text(visible, 1, 255)}, {"Webhook-Id", standardID}, {"Webhook-Timestamp", unixSeconds}}
}

func bitbucketProfile(name, label string, limit int64, id, recover string, optional ...rule) *Profile {
	return &Profile{
		Name: name, Label: label, Auth: HMAC,
		MaxBody: limit, Deadline: longDeadline,
		Retries: "see recovery", Recover: recover,
		canonical: rule{"X-Hub-Signature", sha256Hub}, algorithm: SHA256, prefix: "sha256=",
		required: []rule{{"X-Event-Key", bitbucketEvent}}, optional: optional,
		id: source{header: id}, event: source{header: "X-Event-Key"},
		repository: fullName,
	}
}

// woodpeckerProfile carries a token that only Woodpecker can check. Signature
// headers of the forge may come along, with or without a digest.
func woodpeckerProfile(name, label, query string) *Profile {
	digest := func(name string, ok shape) companion { return companion{rule: rule{name, ok}} }
	empty := literal("")
	p := &Profile{
		Name: name, Label: label, Auth: Unverified,
		MaxBody: MaxBody, MaxBodyForm: 10 * mib, Deadline: shortDeadline,
		Retries: "the forge's", Recover: "the forge's",
		canonical: rule{"", jwt}, query: query,
		companions: []companion{
			digest("X-Hub-Signature", either(sha1Hub, sha256Hub, literal("sha1="))),
			digest("X-Hub-Signature-256", either(sha256Hub, literal("sha256="))),
			digest("X-Gitea-Signature", either(sha256Bare, empty)),
			digest("X-Gogs-Signature", either(sha256Bare, empty)),
			digest("X-Forgejo-Signature", either(sha256Bare, empty)),
			digest("Webhook-Signature", anything),
		},
		repository: append(append([]path{}, fullName...), gitlabPath...),
	}
	if query == "" {
		p.canonical.name = "X-Gitlab-Token"
		return p
	}
	p.companions = append(p.companions, digest("X-Gitlab-Token", text(visible, 1, maxHeaderValue)))
	return p
}
