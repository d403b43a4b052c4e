package mask

import (
	"context"
	"fmt"
	"log/slog"
)

// A handler hides secrets in what it passes on. A panic of the user's handler costs a line, and not
// the process.
type handler struct{ inner slog.Handler }

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) (yes bool) {
	defer func() { _ = recover() }()
	return h.inner.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, line slog.Record) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	attrs := make([]slog.Attr, 0, line.NumAttrs())
	line.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, masked(a))
		return true
	})
	safe := slog.NewRecord(line.Time, line.Level, line.Message, line.PC)
	safe.AddAttrs(attrs...)
	return h.inner.Handle(ctx, safe)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	safe := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		safe[i] = masked(a)
	}
	return &handler{h.inner.WithAttrs(safe)}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler { return &handler{h.inner.WithGroup(name)} }

// masked returns an attribute without secrets. Errors stay errors: a handler may ask what they are.
func masked(a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); Text(text) != text {
			a.Value = slog.StringValue(Text(text))
		}
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok && err != nil {
			a.Value = slog.AnyValue(Error(err))
		}
	case slog.KindGroup:
		group := a.Value.Group()
		safe := make([]slog.Attr, len(group))
		for i, inner := range group {
			safe[i] = masked(inner)
		}
		a.Value = slog.GroupValue(safe...)
	}
	return a
}
