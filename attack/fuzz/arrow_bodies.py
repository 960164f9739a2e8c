"""Hook of Schemathesis: bodies of the type of Arrow streams are sent as they were generated.

Loaded by its command, as the file that `SCHEMATHESIS_HOOKS` names.
"""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.serializer("application/vnd.apache.arrow.stream")
def arrow_body(context: schemathesis.SerializationContext, value: Any) -> dict[str, Any]:
    """Return a body as it is sent; what was generated as text is sent as UTF-8."""
    data = getattr(value, "data", value)
    return {"data": data if isinstance(data, bytes) else str(data).encode(errors="ignore")}
