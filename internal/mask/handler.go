package mask

import (
	"context"
	"fmt"
	"log/slog"
)

// A handler masks secrets in the lines that it passes on. If the user's handler panics, the line is
// lost, but the process continues.
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

// masked returns an attribute without secrets. Errors stay errors, because a handler may check
// their type.
func masked(a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); Text(text) != text {
			a.Value = slog.StringValue(Text(text))
		}
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok && err != nil {
			a.Value = slog.AnyValue(Error(err))
		} else if !ok {
			a.Value = maskedAny(a.Value)
		}
	case slog.KindLogValuer:
		a.Value = slog.AnyValue(valuer{a.Value.LogValuer()})
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

// A valuer masks secrets in the value that another LogValuer returns.
type valuer struct{ inner slog.LogValuer }

// LogValue implements slog.LogValuer.
func (v valuer) LogValue() slog.Value { return masked(slog.Attr{Value: v.inner.LogValue()}).Value }

// maskedAny masks a value of any type, such as the value of a panic. If its text contains a secret,
// the masked text replaces the value.
func maskedAny(v slog.Value) slog.Value {
	text := fmt.Sprintf("%+v", v.Any())
	if bytes, ok := v.Any().([]byte); ok {
		text = string(bytes) // slog.TextHandler prints it this way
	}
	if safe := Text(text); safe != text {
		return slog.StringValue(safe)
	}
	return v
}
