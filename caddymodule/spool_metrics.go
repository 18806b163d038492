package caddymodule

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-admission/gateway/admission/spool"
)

var (
	streakDesc = desc("webhook_consecutive_refusals", "Deliveries refused for lack of capacity or by their receiver since the last that was taken, by configured path.", "hook")

	spoolDeliveriesDesc = desc("spool_deliveries", "Deliveries kept, by state: due or dead.", "state")
	spoolOldestDesc     = desc("spool_oldest_age_seconds", "Age of the oldest delivery that is due; 0 without one.")
	spoolBytesDesc      = desc("spool_bytes", "Bytes of everything kept, dead deliveries included.")
	spoolLimitDesc      = desc("spool_limit_bytes", "Most bytes that may be kept.")
	spoolDiskDesc       = desc("spool_disk_bytes", "Bytes of the spool's files.")
	spoolFailingDesc    = desc("spool_disk_failing", "1 while the spool's disk fails.")
	spoolKeptDesc       = desc("spool_kept_total", "Deliveries made durable.")
	spoolAttemptsDesc   = desc("spool_attempts_total", "Attempts at receivers, by kind (fresh, replayed) and outcome.", "kind", "outcome")
	spoolDeadDesc       = desc("spool_dead_total", "Deliveries set aside, by reason.", "reason")
	spoolDroppedDesc    = desc("spool_dropped_total", "Deliveries that left the spool undelivered, by reason.", "reason")
	spoolRefusedDesc    = desc("spool_refused_total", "Deliveries that the spool did not take, by reason.", "reason")
	spoolDuplicatesDesc = desc("spool_duplicates_total", "Deliveries taken for one that was still due, or that revived a dead one.", "kind")
	spoolDamagedDesc    = desc("spool_damaged_total", "Damaged stretches found in the spool's files.")
	spoolDiskErrorsDesc = desc("spool_disk_errors_total", "Operations that the spool's disk failed.")
)

// collectSpool sends the series of one spool. Its counters count since the
// directory was opened.
func collectSpool(ch chan<- prometheus.Metric, pool string, s spool.Snapshot) {
	gauge(ch, spoolDeliveriesDesc, s.Due, pool, "due")
	gauge(ch, spoolDeliveriesDesc, s.Dead, pool, "dead")
	ch <- prometheus.MustNewConstMetric(spoolOldestDesc, prometheus.GaugeValue, s.Oldest, pool)
	gauge(ch, spoolBytesDesc, int(s.Bytes), pool)
	gauge(ch, spoolLimitDesc, int(s.MaxBytes), pool)
	gauge(ch, spoolDiskDesc, int(s.DiskBytes), pool)
	failing := 0
	if s.DiskFailing {
		failing = 1
	}
	gauge(ch, spoolFailingDesc, failing, pool)
	count(ch, spoolKeptDesc, float64(s.Kept), pool)
	count(ch, spoolDuplicatesDesc, float64(s.Duplicates), pool, "due")
	count(ch, spoolDuplicatesDesc, float64(s.Revived), pool, "dead")
	count(ch, spoolDamagedDesc, float64(s.Damaged), pool)
	count(ch, spoolDiskErrorsDesc, float64(s.DiskErrors), pool)
	for _, outcome := range spool.Outcomes() {
		count(ch, spoolAttemptsDesc, float64(s.Fresh[outcome]), pool, "fresh", outcome)
		count(ch, spoolAttemptsDesc, float64(s.Replayed[outcome]), pool, "replayed", outcome)
	}
	for _, reason := range spool.DeadReasons() {
		count(ch, spoolDeadDesc, float64(s.Died[string(reason)]), pool, string(reason))
	}
	for _, reason := range spool.DropReasons() {
		count(ch, spoolDroppedDesc, float64(s.Dropped[string(reason)]), pool, string(reason))
	}
	for _, reason := range spool.Reasons() {
		count(ch, spoolRefusedDesc, float64(s.Refused[reason]), pool, reason)
	}
}
