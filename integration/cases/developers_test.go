package cases

import (
	"strings"
	"testing"
)

// gatewayBinary is the binary under test, built at most once per run of the
// tests by the go command's own cache.
func gatewayBinary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the built gateway")
	}
	binary, err := Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// TestDeveloperCases runs every case of the file against the built gateway.
func TestDeveloperCases(t *testing.T) {
	list, err := Load(developers)
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{Binary: gatewayBinary(t), Scale: ScaleFromEnv(), Dir: t.TempDir()}
	passed := 0
	r.RunAll(t.Context(), list, DefaultParallel, func(result Result) {
		if result.Passed() {
			passed++
			t.Logf("%s (%.1f s)", result, result.Took.Seconds())
			return
		}
		t.Error(result)
	})
	t.Logf("%d of %d passed", passed, len(list))
}

// TestCaseFailsWithoutItsMechanism switches one mechanism of the gateway off
// and expects the case that needs it to say so.
func TestCaseFailsWithoutItsMechanism(t *testing.T) {
	list, err := Load(developers)
	if err != nil {
		t.Fatal(err)
	}
	binary := gatewayBinary(t)
	for _, x := range []struct {
		id, mechanism, says string
		off                 Switches
	}{
		{"C01", "the directive", "a3 status", Switches{NoAdmission: true}},
		{"C02", "the cap per caller", "person count of 200", Switches{NoCallerCap: true}},
		{"C10", "trusting only declared proxies", "rot count of gateway_refused", Switches{AnyProxy: true}},
		{"C11", "the bucket per caller", "v4mapped count of 200", Switches{NoBuckets: true}},
		{"C19", "the check of a logout token", "flood count of gateway_refused", Switches{NoAdmission: true}},
		{"C20", "waiting for a place", "all count of 200", Switches{NoWait: true}},
		{"C23", "the verify pool", "w5 status", Switches{DryRun: true}},
		{"C31", "checking signatures", "mixed status", Switches{NoVerify: true}},
		{"C47", "the pool of a class", "fifth status", Switches{DryRun: true}},
		{"C56", "a refusal with a time", "burn refusals", Switches{NoBuckets: true}},
		{"C62", "exact exemptions", "probe count of 200", Switches{NoExempt: true}},
		{"C64", "look-alike paths", "login count of 200", Switches{NoAdmission: true}},
		{"C74", "the spool", "w count of 202", Switches{NoSpool: true}},
	} {
		t.Run(x.id, func(t *testing.T) {
			for i := range list {
				if list[i].ID != x.id {
					continue
				}
				r := &Runner{Binary: binary, Scale: ScaleFromEnv(), Dir: t.TempDir(), Off: x.off}
				result := r.Run(t.Context(), &list[i])
				if result.Passed() || !strings.Contains(result.String(), x.says) {
					t.Errorf("without %s: %s; want it to fail for %q", x.mechanism, result, x.says)
				}
			}
		})
	}
}
