"""Names and labels that kube-apiserver refuses.

Source: Kubernetes 1.37, apimachinery/pkg/util/validation (IsDNS1123Subdomain, IsDNS1123Label, IsValidLabelValue).
"""

from __future__ import annotations

import re

from steersman.cluster.objects.fields import FieldError, join
from steersman.cluster.objects.partial import mapping_or_empty
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = (_LABEL, 63, "lower-case letters, digits and hyphens")
_SUBDOMAIN = (rf"{_LABEL}(\.{_LABEL})*", 253, "lower-case letters, digits, '-' and '.'")
_WORD = ("[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", 63, "letters, digits, '-', '_' and '.'")


def check_names(obj: KubernetesObject) -> None:
    """Check name, namespace and labels of an object, and labels of its pod template. Raises FieldError."""
    _check(obj.name, _DNS_LABEL if obj.kind in ("Namespace", "Service") else _SUBDOMAIN, "metadata.name")
    _check(obj.metadata.get("namespace"), _DNS_LABEL, "metadata.namespace")
    template = mapping_or_empty(mapping_or_empty(obj.content.get("spec")).get("template"))
    for metadata, path in (
        (obj.metadata, "metadata"),
        (mapping_or_empty(template.get("metadata")), "spec.template.metadata"),
    ):
        for key, value in mapping_or_empty(metadata.get("labels")).items():
            prefix, _, word = str(key).rpartition("/")
            _check(word, _WORD, f"{path}.labels")
            _check(prefix, _SUBDOMAIN, f"{path}.labels")
            _check(value, _WORD, join(f"{path}.labels", str(key)))


def _check(text: object, rule: tuple[str, int, str], field: str) -> None:
    pattern, most, letters = rule
    if isinstance(text, str) and text and (len(text) > most or not re.fullmatch(pattern, text, re.ASCII)):
        shown = text if len(text) < 80 else f"{text[:60]}..."
        expected = f"expected at most {most} {letters}, with a letter or digit at both ends"
        raise FieldError(field, f"{shown!r} is refused by Kubernetes; {expected}")
