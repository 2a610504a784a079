"""The pages hold together: links resolve, the site shows every page, the two READMEs are one, and figures that repeat a
parameter repeat it rightly.
"""

import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SITE = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
PAGES = sorted(
    [
        *ROOT.glob("README*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("data/*/README.md"),
        ROOT / "benchmarks/README.md",
    ]
)
LINK = re.compile(r"""\]\(([^)\s]+)\)|(?:src|href)=["']([^"']+)["']""")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def name(page):
    return page.relative_to(ROOT).as_posix()


def targets(page):
    for found in LINK.finditer(FENCE.sub("", page.read_text())):
        target = found[1] or found[2]
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def anchors(page):
    """Of its headings, as code hosts and the site both make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {
        re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", re.sub(r"\]\([^)]*\)", "", heading)).strip().lower())
        for heading in headings
    }


def broken(page):
    for target in targets(page):
        path, _, anchor = unquote(target).partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            yield target


def in_navigation(entry):
    match entry:
        case str():
            yield entry
        case dict():
            for inner in entry.values():
                yield from in_navigation(inner)
        case list():
            for inner in entry:
                yield from in_navigation(inner)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page):
    assert list(broken(page)) == []


def test_a_broken_link_would_be_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        '# A page\n\n[a](nowhere.md) [b](#a-page) [c](#another) <img src="no.png">\n\n```\n[d](code.md)\n```\n'
    )
    assert list(broken(page)) == ["nowhere.md", "#another", "no.png"]


def test_every_page_is_in_the_navigation_once():
    shown = list(in_navigation(SITE["nav"]))
    assert len(shown) == len(set(shown))
    assert {page for page in shown if not page.startswith("benchmarks/results/")} == set(map(name, PAGES))
    assert all((ROOT / page).exists() for page in shown)


def test_the_site_loads_nothing_from_elsewhere():
    assert SITE["theme"]["font"] is False
    assert not any("://" in str(SITE.get(key, "")) for key in ("extra_css", "extra_javascript"))


def test_both_readmes_have_the_same_headings_code_blocks_and_commands():
    english, chinese = ((ROOT / file).read_text() for file in ("README.md", "README.zh.md"))
    assert FENCE.findall(english) == FENCE.findall(chinese)

    def levels(text):
        return [len(marks) for marks in re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE)]

    def first_column(text):  # the code in it: commands, folders
        return [re.findall(r"`([^`]+)`", cell) for cell in re.findall(r"^\| ([^|]*)\|", text, re.MULTILINE)]

    assert levels(english) == levels(chinese)
    assert first_column(english) == first_column(chinese)


def test_both_readmes_link_to_the_same_pages():
    english, chinese = (set(targets(ROOT / file)) for file in ("README.md", "README.zh.md"))
    assert english ^ chinese == {"README.md", "README.zh.md"}


def test_what_maintainers_are_told_to_read_exists():
    text = (ROOT / "docs/maintainers.md").read_text()
    named = set(re.findall(r"`([\w.-]+/[\w./-]*)`", text)) | set(re.findall(r"^ +([a-z]+/[\w./]+)", text, re.MULTILINE))
    assert len(named) > 50
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_modules_that_pages_run_exist():
    modules = re.findall(
        r"python -m ([\w.]+)", "".join(page.read_text() for page in PAGES if "archive" not in page.parts)
    )
    ours = {module.replace(".", "/") for module in modules if (ROOT / module.split(".")[0]).is_dir()}
    assert [
        module for module in sorted(ours) if not (ROOT / module).is_dir() and not (ROOT / f"{module}.py").exists()
    ] == []


def test_commands_in_the_readme_exist():
    rules = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^|&& )make ([a-z][\w-]*)", (ROOT / "README.md").read_text(), re.MULTILINE)) <= rules


def test_concepts_counts_steps_as_the_parameters_do():
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    recipe = yaml.safe_load((ROOT / f"recipes/{params['algorithm']['name']}.yaml").read_text())
    prompts, group, optimizer = params["rollout"]["prompts"], recipe["group_size"], recipe["optimizer"]
    steps = -(-prompts * group // optimizer["mini_batch_size"]) * optimizer["num_epochs"]
    warmup = optimizer["warmup_rollout_steps"]
    text = " ".join((ROOT / "docs/concepts.md").read_text().split())
    assert (
        f"{prompts} cases × {group} samples = {prompts * group} trajectories a rollout step; mini-batches of {optimizer['mini_batch_size']}"
        in text
    )
    assert f"{steps} gradient steps; a warm-up of {warmup} rollout steps is {warmup * steps} gradient steps" in text


def test_no_page_or_comment_cites_the_old_diary():
    sources = [
        file
        for folder in (
            "benchmarks",
            "clinic",
            "commands",
            "doctor",
            "flows",
            "kb",
            "recipes",
            "rl",
            "tasks",
            "tracking",
        )
        for file in (ROOT / folder).rglob("*.[py]*")
        if file.suffix in {".py", ".yaml"}
    ]
    assert [name(file) for file in sources if re.search(r"docs/(log|archive)", file.read_text())] == []
