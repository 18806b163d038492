package cases

import (
	"context"
	"os"
	"testing"
)

func TestStock(t *testing.T) {
	bin := os.Getenv("STOCK_BINARY")
	if bin == "" {
		t.Skip()
	}
	list, err := Load(developers)
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{Binary: bin, Scale: 2, Off: Switches{NoAdmission: true}}
	if os.Getenv("ONLY") != "" {
		for i := range list {
			if list[i].ID == os.Getenv("ONLY") {
				r.Trace = os.Stderr
				t.Log(r.Run(context.Background(), &list[i]))
			}
		}
		return
	}
	r.RunAll(context.Background(), list, 4, func(r Result) { t.Log(r) })
}
