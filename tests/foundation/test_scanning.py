import sys

from recunlearn.foundation.scanning import scan


def test_own_classes_of_every_file_by_name(tmp_path, monkeypatch):
    folder = tmp_path / "zoo_of_scan"
    (folder / "deeper").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "deeper" / "__init__.py").touch()
    (folder / "one.py").write_text("class One:\n    name = 'b'\n    kept = True\n")
    (folder / "two.py").write_text(
        "from zoo_of_scan.one import One\nclass Two(One):\n    name = 'A'\nclass Helper:\n    name = 'c'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import zoo_of_scan

    found = scan(zoo_of_scan, lambda kind: hasattr(kind, "kept"))
    assert [(name, kind.__name__) for name, kind in found.items()] == [("A", "Two"), ("b", "One")]
    for module in [m for m in sys.modules if m.startswith("zoo_of_scan")]:
        monkeypatch.delitem(sys.modules, module)
