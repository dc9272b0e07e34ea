"""Names and labels that kube-apiserver refuses.

Source: Kubernetes 1.37, apimachinery/pkg/util/validation (IsDNS1123Subdomain, IsDNS1123Label, IsValidLabelValue).
"""

from __future__ import annotations

import re

from steersman.cluster.objects.fields import FieldError, join
from steersman.cluster.objects.partial import mapping_or_empty
from steersman.workloads.formats.kubernetes.unpacking import KubernetesObject

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_OF_LABEL_NAMES = ("Namespace", "Service")
"""Kinds whose objects are named by labels of DNS; others are named by subdomains."""


def check_names(obj: KubernetesObject) -> None:
    """Check name, namespace and labels of an object, and labels of its pod template. Raises FieldError."""
    name, namespace = obj.metadata.get("name"), obj.metadata.get("namespace")
    if isinstance(name, str) and name:
        if obj.kind in _OF_LABEL_NAMES:
            _check(name, _LABEL, 63, "metadata.name", "lower-case letters, digits and hyphens")
        else:
            _check(name, rf"{_LABEL}(\.{_LABEL})*", 253, "metadata.name", "lower-case letters, digits, '-' and '.'")
    if isinstance(namespace, str) and namespace:
        _check(namespace, _LABEL, 63, "metadata.namespace", "lower-case letters, digits and hyphens")
    template = mapping_or_empty(mapping_or_empty(obj.content.get("spec")).get("template"))
    of_template = mapping_or_empty(template.get("metadata")) if obj.kind != "Pod" else {}
    for metadata, path in ((obj.metadata, "metadata.labels"), (of_template, "spec.template.metadata.labels")):
        for key, value in mapping_or_empty(metadata.get("labels")).items():
            prefix, _, word = str(key).rpartition("/")
            _check(word, _WORD, 63, path, "letters, digits, '-', '_' and '.'")
            _check(prefix or "a", rf"{_LABEL}(\.{_LABEL})*", 253, path, "lower-case letters, digits, '-' and '.'")
            if isinstance(value, str) and value:
                _check(value, _WORD, 63, join(path, str(key)), "letters, digits, '-', '_' and '.'")


def _check(text: str, pattern: str, most: int, field: str, letters: str) -> None:
    if len(text) > most or not re.fullmatch(pattern, text, re.ASCII):
        shown = text if len(text) < 80 else f"{text[:60]}..."
        expected = f"expected at most {most} {letters}, with a letter or digit at both ends"
        raise FieldError(field, f"{shown!r} is refused by Kubernetes; {expected}")
