package caddymodule

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-admission/gateway/admission"
	"github.com/caddy-admission/gateway/admission/gate"
	"github.com/caddy-admission/gateway/admission/identity"
)

// Metric names start with caddy_admission_. Every label value comes from a
// closed set of the engine, except pool and hook, which stand in the
// configuration.
var (
	decisionsDesc    = desc("decisions_total", "Decisions about requests, by class and outcome.", "class", "outcome")
	holdDesc         = desc("permit_hold_seconds", "How long permits were held.", "class")
	inUseDesc        = desc("in_use", "Permits held while the client is there.", "class")
	limitDesc        = desc("limit", "Most permits the class may hold; -1 is no limit.", "class")
	waitingDesc      = desc("waiting", "Requests that wait for a permit.", "class")
	abandonedDesc    = desc("abandoned", "Permits held after the client left, until the upstream ends.", "class")
	questionsDesc    = desc("questions_total", "Questions to the upstream that prove a credential, by answer.", "answer")
	verifyDesc       = desc("verify_total", "Questions to the forge about who a credential or session belongs to, by answer.", "answer")
	replayedDesc     = desc("challenge_replayed_total", "Discovery requests answered from a remembered challenge.")
	webhookDesc      = desc("webhook_admission_total", "Webhook deliveries, by how they ended.", "outcome")
	overflowDesc     = desc("callers_overflow_total", "Decisions that found the table of callers full and used the budget newcomers share then.")
	abandonedCutDesc = desc("abandoned_cut_total", "Abandoned work that was cut because half of its class was abandoned.")
	limitedDesc      = desc("public_request_limited_total", "Refused requests that anybody can make, by class of route.", "route_class")
)

var allDescs = []*prometheus.Desc{
	decisionsDesc, holdDesc, inUseDesc, limitDesc, waitingDesc, abandonedDesc,
	questionsDesc, verifyDesc, replayedDesc, webhookDesc, limitedDesc, overflowDesc, abandonedCutDesc,
	streakDesc, spoolDeliveriesDesc, spoolOldestDesc, spoolBytesDesc, spoolLimitDesc, spoolDiskDesc, spoolFailingDesc,
	spoolKeptDesc, spoolAttemptsDesc, spoolDeadDesc, spoolDroppedDesc, spoolRefusedDesc,
	spoolDuplicatesDesc, spoolDamagedDesc, spoolDiskErrorsDesc,
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("caddy_admission_"+name, help, append([]string{"pool"}, labels...), nil)
}

// public are the git and page classes whose requests need no account; the
// gate counts those of the ingress itself.
var public = []admission.Class{admission.Discovery, admission.Candidate, admission.Anonymous, admission.Web}

// collector reads the pools of a registry when it is scraped. It holds no
// value of its own: the counters live in the pools, so they outlive
// configurations however often it is registered.
type collector struct {
	registry *registry
	spools   *spools
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range allDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, k := range c.spools.list() {
		collectSpool(ch, k.pool, k.sp.Snapshot())
	}
	for pool := range c.spools.closed() {
		gauge(ch, spoolFailingDesc, 1, pool)
	}
	for _, pool := range c.registry.list() {
		s := pool.state.Controller.Snapshot()
		for class := range admission.NumClasses {
			collectClass(ch, pool.name, class, &s)
		}
		collectIngress(ch, pool.name, &s, pool.state.Ingress.Snapshot())
		id := pool.state.Identity.Snapshot()
		collectQuestions(ch, pool.name, id)
		collectVerify(ch, pool.name, pool.state.Verified())
		count(ch, replayedDesc, float64(id.ChallengesReplayed), pool.name)
		count(ch, overflowDesc, float64(s.Callers.Overflow), pool.name)
		count(ch, abandonedCutDesc, float64(pool.state.AbandonedCut()), pool.name)
	}
}

// collectClass sends the series of one class. Decisions that never happened
// and histograms that are empty are left out, which bounds the series.
func collectClass(ch chan<- prometheus.Metric, pool string, class admission.Class, s *admission.Snapshot) {
	name, c := class.String(), s.Classes[class]
	for d := range admission.NumDecisions {
		if n := s.Decisions[class][d]; n > 0 || d == admission.DecisionAdmitted {
			count(ch, decisionsDesc, float64(n), pool, name, d.String())
		}
	}
	gauge(ch, inUseDesc, c.InUse, pool, name)
	gauge(ch, limitDesc, c.Max, pool, name)
	gauge(ch, waitingDesc, c.Waiting, pool, name)
	gauge(ch, abandonedDesc, c.Abandoned, pool, name)
	if h := s.Holds[class]; h.Count > 0 {
		ch <- prometheus.MustNewConstHistogram(holdDesc, h.Count, h.Sum, cumulative(h), pool, name)
	}
}

// cumulative turns the engine's buckets into Prometheus'.
func cumulative(h admission.Histogram) map[float64]uint64 {
	out := make(map[float64]uint64, len(admission.HoldBounds))
	sum := uint64(0)
	for i, bound := range admission.HoldBounds {
		sum += h.Buckets[i]
		out[bound] = sum
	}
	return out
}

// collectIngress sends the totals that webhook and public routes are watched
// by. Webhook outcomes that never happened are left out, which bounds the
// series.
func collectIngress(ch chan<- prometheus.Metric, pool string, s *admission.Snapshot, in gate.IngressSnapshot) {
	for outcome, n := range in.Webhooks {
		if n > 0 || outcome == gate.HookDelivered.String() {
			count(ch, webhookDesc, float64(n), pool, outcome)
		}
	}
	for path, n := range in.Streaks {
		ch <- prometheus.MustNewConstMetric(streakDesc, prometheus.GaugeValue, float64(n), pool, path)
	}
	for class, n := range in.Limited {
		count(ch, limitedDesc, float64(n), pool, class)
	}
	for _, class := range public {
		count(ch, limitedDesc, float64(refusals(s, class)), pool, class.String())
	}
}

// refusals counts what was refused in a class, for whatever reason.
func refusals(s *admission.Snapshot, class admission.Class) (n uint64) {
	for r := range admission.NumReasons {
		if d := admission.DecisionRefused(r); d != admission.DecisionGone {
			n += s.Decisions[class][d]
		}
	}
	return n
}

func collectQuestions(ch chan<- prometheus.Metric, pool string, s identity.Snapshot) {
	count(ch, questionsDesc, float64(s.Questions.Unknown), pool, "unknown")
	count(ch, questionsDesc, float64(s.Questions.Refused), pool, "refused")
	count(ch, questionsDesc, float64(s.Questions.Accepted), pool, "accepted")
}

func collectVerify(ch chan<- prometheus.Metric, pool string, v gate.VerifySnapshot) {
	count(ch, verifyDesc, float64(v.Genuine), pool, "genuine")
	count(ch, verifyDesc, float64(v.Stranger), pool, "stranger")
	count(ch, verifyDesc, float64(v.Unknown), pool, "unknown")
	count(ch, verifyDesc, float64(v.NoPlace), pool, "no_place")
}

func count(ch chan<- prometheus.Metric, d *prometheus.Desc, n float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, labels...)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, n int, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}

// registerMetrics makes the process's counters visible in one configuration's
// registry. Every configuration has a registry of its own and may hold several
// handlers.
func registerMetrics(r *prometheus.Registry) error {
	err := r.Register(collector{process, keepers})
	if already := (prometheus.AlreadyRegisteredError{}); errors.As(err, &already) {
		return nil
	}
	return err
}
