package cases

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// gitClasses share the product's one total.
var gitClasses = []string{"git_push", "git_read", "discovery", "candidate", "git_anon"}

// smallClasses are the permits of profile "small".
var smallClasses = map[string]int{
	"git_anon": 2, "git_read": 2, "git_push": 2, "candidate": 1, "discovery": 2, "webhook": 4, "logout": 2, "login": 2,
	"stream": 4, "other": 4,
}

// smallDeadlines are the deadlines of profile "small", in milliseconds.
var smallDeadlines = map[string]float64{"webhook": 8000}

// smallBudgets are the budgets of profile "small".
var smallBudgets = map[string]Budget{
	"webhook_requests": {Burst: 200, Rate: 50}, "webhook_bytes": {Burst: 32 << 20, Rate: 8 << 20, UndeclaredCharge: 25 << 20},
	"logout": {Burst: 64, Rate: 32}, "login": {Burst: 16, Rate: 4},
}

// smallHooks are the hooks of profile "small".
var smallHooks = []WebhookSetup{
	{Path: "/hooks/github", Scheme: "github", Secrets: []string{"S1"}},
	{Path: "/hooks/github2", Scheme: "github", Secrets: []string{"S2"}},
	{Path: "/hooks/gitea", Scheme: "gitea", Secrets: []string{"S1"}},
	{Path: "/hooks/gitlab", Scheme: "gitlab-token", Secrets: []string{"S1"}},
}

// sharedBudgets are those that, unless they say otherwise, all callers share.
var sharedBudgets = []string{"webhook_requests", "webhook_bytes", "webhook_per_hook", "logout", "login"}

// budgetClass is the class a budget belongs to where the names differ. Batch
// requests are what an LFS budget counts; the product reads them as fetches.
var budgetClass = map[string]string{"lfs": "git_read"}

// admission writes the product's directive.
func (a *adapter) admission() {
	a.checkSetup()
	matcher := ""
	if len(a.setup.Exempt) > 0 && !a.off.NoExempt {
		a.add("\t@limited not path %s", strings.Join(a.setup.Exempt, " "))
		matcher = " @limited"
	}
	before, _ := a.handlerPaths()
	for _, path := range before {
		a.add("\tadmission %s", path)
	}
	a.add("\tadmission%s {", matcher)
	a.pool()
	a.classes()
	a.ingress()
	if a.invalid {
		a.add("\t\tno_such_setting 1")
	}
	a.add("\t}")
}

// handlerPaths reads the handlers switch: a number of directives for the same
// pool in one chain, or the paths of the additional ones.
func (a *adapter) handlerPaths() ([]string, error) {
	if len(a.setup.Handlers) == 0 {
		return nil, nil
	}
	var n int
	if json.Unmarshal(a.setup.Handlers, &n) == nil && n >= 1 && n <= 8 {
		return make([]string, n-1), nil
	}
	var paths []string
	if err := json.Unmarshal(a.setup.Handlers, &paths); err != nil {
		a.fail("unknown handlers %s", a.setup.Handlers)
		return nil, err
	}
	return paths, nil
}

func (a *adapter) checkSetup() {
	if a.setup.Profile != "" && a.setup.Profile != "small" {
		a.fail("unknown profile %q", a.setup.Profile)
	}
	for _, name := range sortedKeys(a.setup.Classes) {
		if productClasses[name] == nil {
			a.fail("unknown class %q", name)
		}
	}
	if len(a.setup.Lease) > 0 {
		a.fail("lease: the product shares no budget between replicas")
	}
	if p := a.setup.Proof; p != nil && p.TTLMS < 0 {
		a.fail("proof ttl_ms %v", p.TTLMS)
	}
	if d := a.setup.Dedupe; d != nil && d.Key != "" && d.Key != "delivery_id" && d.Key != "id" {
		a.fail("unknown dedupe key %q", d.Key)
	}
	if _, err := a.handlerPaths(); err != nil {
		a.fail("handlers: %v", err)
	}
}

// pool writes the settings of the whole pool.
func (a *adapter) pool() {
	a.add("\t\ttotal %d", a.total())
	if a.off.NoWait {
		a.add("\t\twait off")
	}
	if a.off.NoReserve || a.starves() {
		a.add("\t\tallow_starvation")
	}
	if a.off.DryRun {
		a.add("\t\tdry_run")
	}
	if c := a.setup.ClientIP; c != nil && c.IPv6Prefix != 0 {
		a.add("\t\tcaller {client_ip} 32 %d", c.IPv6Prefix)
	}
	if a.setup.KeysMax > 0 {
		a.add("\t\tcallers_max %d", a.setup.KeysMax)
	}
	if r := a.setup.Refusal; r != nil {
		for _, name := range sortedKeys(productClasses) {
			status, ok := r.Classes[name]
			if !ok {
				status = r.Status
			}
			for _, product := range productClasses[name] {
				if status != 0 && product != "lfs" {
					a.add("\t\trefuse_status %s %d", product, status)
				}
			}
		}
	}
	a.add("\t\tlog_callers")
}

// permits is the number of a class's own permits, -1 when the setup says none.
func (a *adapter) permits(class string) int {
	if c, ok := a.setup.Classes[class]; ok && c.Permits != nil {
		return *c.Permits
	}
	if n, ok := smallClasses[class]; ok && a.setup.Profile == "small" {
		return n
	}
	return -1
}

// total is the sum of what the git classes own.
func (a *adapter) total() int {
	sum := 0
	for _, class := range gitClasses {
		sum += max(0, a.permits(class))
	}
	if sum == 0 {
		sum = 128
	}
	return sum
}

// lent is what other classes let this one use when it is idle there.
func (a *adapter) lent(to string) int {
	sum := 0
	for from, c := range a.setup.Classes {
		if slices.Contains(c.LendTo, to) {
			sum += max(0, a.permits(from))
		}
	}
	return sum
}

// starves reports whether a class on a push's path has nothing of its own.
func (a *adapter) starves() bool {
	return slices.ContainsFunc([]string{"git_push", "candidate", "discovery"}, func(class string) bool {
		return len(a.setup.Classes[class].LendTo) > 0
	})
}

// classes writes a block for every class that the setup or its profile limits.
func (a *adapter) classes() {
	for _, neutral := range sortedKeys(productClasses) {
		_, written := a.setup.Classes[neutral]
		if !written && a.permits(neutral) < 0 && len(a.budgetsOf(neutral)) == 0 {
			continue
		}
		for _, product := range productClasses[neutral] {
			a.add("\t\tclass %s {", product)
			a.class(neutral, product)
			a.add("\t\t}")
		}
	}
}

func (a *adapter) class(neutral, product string) {
	c, permits := a.setup.Classes[neutral], a.permits(neutral)
	if permits >= 0 && product != "webhook" {
		if slices.Contains(gitClasses, neutral) {
			reserve := permits
			if len(c.LendTo) > 0 || a.off.NoReserve {
				reserve = 0
			}
			a.add("\t\t\treserve %d", reserve)
			if a.off.NoReserve {
				permits = a.total()
			}
		}
		a.add("\t\t\tmax %d", permits+a.lent(neutral))
	}
	if product != "webhook" { // its pool never queues
		a.callerMax(neutral, permits+a.lent(neutral))
		a.wait(c)
	} else if c.Queue != nil && *c.Queue > 0 {
		a.fail("class webhook: the product has no queue for deliveries")
	}
	if ms, ok := a.deadline(neutral); ok {
		a.add("\t\t\tdeadline %s", duration(ms))
	}
	if product == "stream" {
		a.streamPaths()
	}
	a.guards(c)
	for _, name := range a.budgetsOf(neutral) {
		a.classBudget(name)
	}
}

// streamPaths declares, as an operator who knows his upstream would, which
// paths stream. Only a setup that limits pages and streams apart needs it:
// elsewhere the upstream's own answer says so.
func (a *adapter) streamPaths() {
	_, pages := a.setup.Classes["other"]
	_, streams := a.setup.Classes["stream"]
	if !pages || !streams {
		return
	}
	found := map[string]bool{}
	anyStep(a.steps, func(s *Step) bool {
		b, _ := parseBehaviour(s.Upstream) // checked when the case was read
		if path, _, _ := strings.Cut(s.Path, "?"); path != "" && (s.Op == "ws" || b.streams() || b.has(doGRPCHold) || b.has(doEcho)) {
			found[path] = true
		}
		return false
	})
	for _, path := range sortedKeys(found) {
		a.add("\t\t\tpath %s", path)
	}
}

// largestAnswer is the time an upstream of a case may take, in milliseconds.
const largestAnswer = 30_000

func (a *adapter) deadline(neutral string) (float64, bool) {
	if c := a.setup.Classes[neutral]; c.DeadlineMS != nil {
		return *c.DeadlineMS, true
	}
	if wait := a.setup.Classes[neutral].MaxWaitMS; wait != nil && neutral == "logout" {
		return *wait + largestAnswer, true // the product's own deadline is shorter than some waits
	}
	ms, ok := smallDeadlines[neutral]
	return ms, ok && a.setup.Profile == "small"
}

// callerMax writes the limit per flow. Without one the caller may hold all
// permits of the class, which is what "no limit per flow" means.
func (a *adapter) callerMax(neutral string, all int) {
	c := a.setup.Classes[neutral]
	if all < 1 {
		all = 1 << 16
	}
	each := all
	if c.PerFlow != nil && !a.off.NoCallerCap {
		each = *c.PerFlow
	}
	byCredential := neutral == "git_push" || neutral == "git_read"
	switch {
	case byCredential && (c.FlowKey == "user" || c.FlowKey == "credential"):
		a.add("\t\t\tcaller_max %d %d", each, max(all, each))
	case byCredential && (c.FlowKey == "" || c.FlowKey == "client_ip"):
		a.add("\t\t\tcaller_max %d %d", max(all, each), each)
	case c.FlowKey == "" || c.FlowKey == "client_ip":
		a.add("\t\t\tcaller_max %d", each)
	case strings.HasPrefix(c.FlowKey, "{"):
		a.add("\t\t\tcaller_max %d by %s", each, c.FlowKey)
	case c.FlowKey == "repository":
		a.add("\t\t\tcaller_max %d\n\t\t\trepo_max %d", all, each)
	default:
		a.fail("class %s: unknown flow_key %q", neutral, c.FlowKey)
	}
}

func (a *adapter) wait(c ClassSetup) {
	if c.Queue == nil || *c.Queue == 0 || a.off.NoWait {
		a.add("\t\t\twait off")
		return
	}
	longest := float64(10_000)
	if c.MaxWaitMS != nil {
		longest = *c.MaxWaitMS
	}
	a.add("\t\t\twait %d %s", *c.Queue, duration(longest))
}

// guards writes the limits on slow clients.
func (a *adapter) guards(c ClassSetup) {
	if c.BodyIdleMS != nil {
		a.add("\t\t\tbody_idle %s", duration(*c.BodyIdleMS))
	}
	if c.StallMS != nil {
		a.add("\t\t\tstall %s", duration(*c.StallMS))
	}
	if c.MinRateBPS != nil {
		a.add("\t\t\tmin_rate %s", number(math.Round(*c.MinRateBPS)))
	}
}

// budget returns a budget of the setup or its profile.
func (a *adapter) budget(name string) (Budget, bool) {
	if a.off.NoBuckets {
		return Budget{Burst: 1 << 40, Rate: 1e6}, slices.Contains(sharedBudgets, name) && name != "webhook_per_hook"
	}
	if b, ok := a.setup.Budgets[name]; ok {
		return b, true
	}
	b, ok := smallBudgets[name]
	return b, ok && a.setup.Profile == "small"
}

// budgetsOf names the budgets that are written inside a class's block.
func (a *adapter) budgetsOf(neutral string) (names []string) {
	known := []string{"webhook_requests", "webhook_bytes", "webhook_per_hook", "login_account"}
	for _, name := range sortedKeys(a.setup.Budgets) {
		class := name
		if to, ok := budgetClass[name]; ok {
			class = to
		}
		if slices.Contains(known, name) {
			continue
		}
		if productClasses[class] == nil {
			a.fail("unknown budget %q", name)
		}
		if class == neutral && !a.off.NoBuckets {
			names = append(names, name)
		}
	}
	for _, name := range []string{"login", "logout"} {
		if _, ok := a.budget(name); ok && name == neutral && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// classBudget writes a budget inside a class's block.
func (a *adapter) classBudget(name string) {
	b, _ := a.budget(name)
	word := "caller_bucket"
	switch b.Key {
	case "":
		if slices.Contains(sharedBudgets, name) {
			word = "bucket"
		}
	case "client_ip", "user", "flow", "address":
	case "global", "shared", "class", "none":
		word = "bucket"
	default:
		a.fail("budget %s: unknown key %q", name, b.Key)
	}
	switch b.Count {
	case "", "requests":
		a.add("\t\t\t%s %s", word, bucketText(b))
	case "bytes":
		a.add("\t\t\tbytes %s", bucketText(b))
	default:
		a.fail("budget %s: unknown count %q", name, b.Count)
	}
	if b.Action != "" && b.Action != "refuse" {
		a.fail("budget %s: unknown action %q", name, b.Action)
	}
}

// bucketText is "<burst> <n>/s"; the product's bursts are whole numbers.
func bucketText(b Budget) string {
	rate := strconv.FormatFloat(b.Rate, 'f', -1, 64)
	return fmt.Sprintf("%s %s/s", number(math.Round(b.Burst)), rate)
}
