"""The prompts that a config asks for: a style, a function of one's own or a Jinja template."""

from __future__ import annotations

from typing import Any, TypedDict

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from crbc_envs.prompts import IMAGE, Template, View
from crbc_rl.config import EnvConfig, RunConfig
from crbc_rl.config.extensions import called_with, is_extension, load
from crbc_rl.errors import ConfigError


class PromptOptions(TypedDict):
    """The arguments of `collect` and of `PromptWindow.of` that make prompts."""

    prompt: str | Template
    history: int
    system: str | None


def prompt_options(config: RunConfig) -> PromptOptions:
    """What a config says about prompts. Raises `ConfigError` for a template or a module that cannot be used."""
    env = config.env
    prompt: str | Template = env.prompt
    if env.template is not None:
        prompt = jinja_template(env.template, env)
    elif is_extension(env.prompt):
        prompt = called_with(load(env.prompt, config.modules, "env.prompt"), f"env.prompt: {env.prompt}", "view")
    return {"prompt": prompt, "history": env.history, "system": env.system}


def jinja_template(text: str, settings: EnvConfig) -> Template:
    """A template of the fields of `crbc_envs.View`, and `image`, the place of the frame.

    It runs in Jinja's sandbox: a template may come from a stranger. It makes plain text, so nothing is escaped. Raises
    `ConfigError` naming the line.
    """
    name = settings.prompt if settings.prompt.endswith(".j2") else "env.template"
    sandbox = ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    try:
        compiled = sandbox.from_string(text)
    except TemplateSyntaxError as error:
        raise ConfigError(f"env.prompt: {name}, line {error.lineno}: {error.message}") from error

    def template(view: View) -> str:
        fields: dict[str, Any] = {field: getattr(view, field) for field in View.__dataclass_fields__}
        try:
            return compiled.render({**fields, "image": IMAGE})
        except TemplateError as error:
            raise ConfigError(f"env.prompt: {name}: {error.message}") from error
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"env.prompt: {name}: {type(error).__name__}: {error}") from error

    return template
