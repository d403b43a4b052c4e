package pgxkit

import "testing"

// A nil transaction, which an application passes if it ignores the error of Begin, causes an error.
//
// Fails when QueryRow or Exec uses it.
func TestNilTransactionIsAnError(t *testing.T) {
	t.Parallel()
	var n int
	if err := QueryRow(t.Context(), nil, "SELECT 1").Scan(&n); err == nil {
		t.Error("QueryRow: no error")
	}
	if _, err := Exec(t.Context(), nil, "SELECT 1"); err == nil {
		t.Error("Exec: no error")
	}
}
