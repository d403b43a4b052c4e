package mask_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/internal/mask"
)

const secret = "s3cr3t-Canary"

// Fails when a form in which drivers and clients quote secrets is not recognized.
func TestSecretsAreHidden(t *testing.T) {
	for _, text := range []string{
		"dial postgres://app:" + secret + "@db-1.internal:5432/shop?sslmode=disable: refused",
		"dial postgresql://app:p@ss/" + secret + "@db/shop",
		"redis://:" + secret + "@127.0.0.1:6379/0", "rediss-sentinel://u:" + secret + "@a,b,c/master",
		"app:" + secret + "@tcp(db:3306)/shop?parseTime=true",
		`parse "http://u:` + secret + `@host/%zz": invalid URL escape`,
		`Post "https://` + secret + `@hooks.internal/x": EOF`,
		`Post "https://hooks.internal/x?a=1&access_token=` + secret + `&b=2": EOF`,
		"https://hooks/x?sig=" + secret, "https://s3/x?X-Amz-Signature=" + secret + "&x=1",
		"host=db user=app password=" + secret + " dbname=shop", "host=db password='a b " + secret + "' dbname=shop",
		`password='it\'s ` + secret + `'`, "password='it''s " + secret + "'", `password = "` + secret + `"`,
		"PGPASSWORD=" + secret, "AWS_SECRET_ACCESS_KEY=" + secret, "client_secret: " + secret, "pwd=" + secret,
		"Server=db;User Id=sa;Password=" + secret + ";", "passphrase=" + secret,
		`{"user":"app","password":"` + secret + `"}`, `{"body":"{\"token\":\"` + secret + `\"}"}`,
		"Authorization: Bearer " + secret, "authorization=Basic " + secret + "=", "Bearer " + secret,
		"map[Authorization:[Bearer " + secret + "] Host:[x]]", "the header Authorization: Digest u=\"a\", r=" + secret,
		"Cookie: a=1; session=" + secret, "Set-Cookie: session=" + secret + "; HttpOnly",
		"X-Api-Key: " + secret, "x-auth-token: " + secret, "Proxy-Authorization: Basic " + secret,
		"refused bearer " + secret + " by the gateway",
	} {
		if got := mask.Text(text); strings.Contains(got, "s3cr3t") || strings.Contains(got, "Canary") ||
			!strings.Contains(got, mask.Mask) {
			t.Errorf("%q became %q", text, got)
		}
		if got := mask.Text(mask.Text(text)); got != mask.Text(text) {
			t.Errorf("masked twice %q became %q", text, got)
		}
	}
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-DEF"
	if got := mask.Text("refused " + jwt); strings.Contains(got, "eyJ") {
		t.Errorf("a JWT became %q", got)
	}
}

// Fails when text that operators need is masked too.
func TestOtherTextStays(t *testing.T) {
	for _, text := range []string{
		"", `ERROR: password authentication failed for user "app" (SQLSTATE 28P01)`, "connection refused",
		"dial tcp 127.0.0.1:5432: connect: connection refused", "WRONGPASS invalid username-password pair",
		"NOAUTH Authentication required.", "basic authentication failed", "bearer token expired",
		"paused by ann@web-1 until 2026-01-01T00:00:00Z", "vm/2008/yhndwohk", "timer:report:slot:1",
		"tokenizer failed at line 3", "http://host:8080/path", "redis 127.0.0.1:6379: i/o timeout",
	} {
		if got := mask.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// Fails when a header is judged only by its value.
func TestHeadersWithSecretsAreHidden(t *testing.T) {
	secrets := []string{"Authorization", "authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key",
		"api_key", "X-Auth-Token", "csrf-token", "X-Secret", "Password", "X-Amz-Signature", "X-Auth"}
	headers := map[string]string{"traceparent": "00-1-2-01", "Content-Type": "text/plain",
		"callback": "https://u:" + secret + "@x/"}
	for _, name := range secrets {
		headers[name] = secret
	}
	got := mask.Headers(headers)
	if len(got) != len(headers) || strings.Contains(fmt.Sprint(got), secret) {
		t.Errorf("got %v", got)
	}
	if got["traceparent"] != "00-1-2-01" || got["Content-Type"] != "text/plain" {
		t.Errorf("other headers became %v", got)
	}
	if mask.Headers(nil) != nil {
		t.Error("nil became something")
	}
}

// Fails when an error loses its type, or when a logger bypasses the mask.
func TestErrorsAndLinesAreMasked(t *testing.T) {
	cause := &url.Error{Op: "Get", URL: "http://u:" + secret + "@x", Err: errors.New("EOF")}
	err := mask.Error(fmt.Errorf("call: %w", cause))
	if strings.Contains(fmt.Sprintf("%v %+v %s", err, err, err), secret) || !errors.Is(err, cause.Err) {
		t.Errorf("got %v", err)
	}
	if as, ok := errors.AsType[*url.Error](err); !ok || as != cause || mask.Error(nil) != nil {
		t.Errorf("got %v", as)
	}
	var out bytes.Buffer
	l := mask.Logger(mask.Logger(slog.New(slog.NewJSONHandler(&out, nil))))
	l.With("before", "password="+secret).WithGroup("g").Error("line", "err", cause, "stack", "token="+secret,
		slog.Group("in", "err", cause), "n", 3)
	if strings.Contains(out.String(), secret) {
		t.Error(out.String())
	}
	var line struct {
		Msg string
		G   struct {
			N   int
			Err string
		}
	}
	if e := json.Unmarshal(out.Bytes(), &line); e != nil || line.Msg != "line" || line.G.N != 3 ||
		!strings.Contains(line.G.Err, "EOF") {
		t.Errorf("%v: %s", e, out.String())
	}
}

// described is a value that decides itself how it is logged.
type described string

func (d described) LogValue() slog.Value { return slog.StringValue(string(d)) }

// Panics may have values of any type, and these are logged unchanged if they contain no secret.
//
// Fails when a value that is neither a text nor an error shows a secret, or when a value without a
// secret is reformatted.
func TestOtherValuesAreMasked(t *testing.T) {
	type config struct{ Host, Password string }
	for _, value := range []any{config{"db", secret}, &config{"db", secret}, &url.URL{Scheme: "http", Host: "x",
		User: url.UserPassword("u", secret)}, []byte("token=" + secret), map[string]string{"api-key": secret},
		described("password=" + secret)} {
		var out bytes.Buffer
		text := mask.Logger(slog.New(slog.NewTextHandler(&out, nil)))
		text.Error("line", "panic", value)
		text.With("panic", value).Error("line")
		mask.Logger(slog.New(slog.NewJSONHandler(&out, nil))).Error("line", "panic", value)
		if strings.Contains(out.String(), secret) || !strings.Contains(out.String(), mask.Mask) {
			t.Errorf("%T: %s", value, out.String())
		}
	}
	var out bytes.Buffer
	mask.Logger(slog.New(slog.NewJSONHandler(&out, nil))).Error("line", "panic", config{Host: "db"})
	if !strings.Contains(out.String(), `"Host":"db"`) {
		t.Error(out.String())
	}
}

// panicking is a user's handler whose methods all panic.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { panic("enabled") }

func (panicking) Handle(context.Context, slog.Record) error { panic("handle") }

// quarrelsome is a handler that panics only when it handles a line.
type quarrelsome struct{ slog.Handler }

func (quarrelsome) Handle(context.Context, slog.Record) error { panic("handle") }

// Every part logs through Logger, so no part needs to survive the user's handler itself.
//
// Fails when a panic of the handler reaches the caller.
func TestHandlerThatPanics(t *testing.T) {
	mask.Logger(slog.New(panicking{slog.DiscardHandler})).Error("line")
	l := mask.Logger(slog.New(quarrelsome{slog.NewTextHandler(io.Discard, nil)}))
	l.Error("line", "n", 1)
	if err := l.Handler().Handle(t.Context(), slog.Record{}); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Error(err)
	}
}
