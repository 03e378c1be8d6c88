"""Training of a RecBole model by Lightning: RecBole's classes, losses and loaders, early stopping, resume."""

import math
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import nn
from torch.nn.utils.clip_grad import clip_grad_norm_

from recunlearn.foundation.errors import RecunlearnError, UsageError, near_miss
from recunlearn.foundation.quiet import silent_lightning
from recunlearn.subjects.progress import Bar
from recunlearn.subjects.recbole.bundle import Bundle
from recunlearn.subjects.recbole.compat import (
    AUTO_ENCODERS,
    TrainDataLoader,
    UserDataLoader,
    build_model,
    init_seed,
    quiet,
)
from recunlearn.subjects.recbole.evaluation import evaluate, main_metric
from recunlearn.subjects.recbole.resume import Journal
from recunlearn.subjects.recbole.sampling import TrainRepeatableSampler, TrainSampler

_OPTIMISERS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "sparse_adam": torch.optim.SparseAdam,
}


@dataclass(frozen=True)
class Fitted:
    """A trained model and how it came about.

    Args:
        model: in eval mode, with the weights of ``best_epoch``.
        best_epoch: number of epochs that made the weights (from 1).
        losses: sum of batch losses, one per epoch run.
        valid: metrics of the validation part, one per epoch run.
    """

    model: nn.Module
    best_epoch: int
    losses: list[float]
    valid: list[dict[str, float]]


def train_loader(bundle: Bundle) -> Any:
    """RecBole's loader of the training part, with the vectorised sampler."""
    config, args = bundle.config, bundle.config["train_neg_sample_args"]
    with quiet():
        if config["model"] in AUTO_ENCODERS:
            return UserDataLoader(config, bundle.train, None, shuffle=True)
        sampler = None
        if args["distribution"] != "none":
            kind, alpha = args["distribution"], args["alpha"]
            if config["repeatable"]:
                sampler = TrainRepeatableSampler(bundle.train, kind, alpha)
            else:
                sampler = TrainSampler([bundle.train, bundle.valid, bundle.test], kind, alpha)
        return TrainDataLoader(config, bundle.train, sampler, shuffle=config["shuffle"])


def prepare(bundle: Bundle) -> tuple[nn.Module, Any]:
    """Freshly initialised model and its loader, seeded and in RecBole's order (loader first)."""
    loader = train_loader(bundle)
    init_seed(bundle.config["seed"], reproducibility=True)
    model = build_model(bundle.config, bundle.train)
    if bundle.config["train_neg_sample_args"].get("dynamic"):
        loader.get_model(model)
    return model, loader


def fit(
    bundle: Bundle,
    *,
    epochs: int,
    patience: int | None,
    work: Path | None = None,
    progress: bool = False,
    title: str = "Training",
) -> Fitted:
    """Train for at most ``epochs``.

    Args:
        bundle: settings and data.
        epochs: most epochs.
        patience: evaluations without a better validation score before stopping; None: no evaluation.
        work: folder that a killed run resumes from, bit for bit; None: no resume.
        progress: show a bar on stderr.
        title: text before the bar.

    Raises:
        RecunlearnError: the loss is no longer a number.
    """
    model, loader = prepare(bundle)
    optimiser = build_optimiser(model, bundle.config)
    module = _Module(model, optimiser, bundle)
    journal = Journal(work, bundle.facts, epochs, model, optimiser, loader)
    watch = _Watch(bundle, journal, patience if len(bundle.valid) else None)
    journal.resume()
    left = epochs - journal.epoch
    if left > 0 and not watch.is_over():
        callbacks = [watch, *([Bar(title, epochs, journal)] if progress else [])]
        _run(module, loader, bundle, left, callbacks)
    model.to(bundle.config["device"])
    journal.restore_best()
    return Fitted(model.eval(), journal.best_epoch, journal.losses, journal.valid)


def build_optimiser(model: nn.Module, config: Any) -> torch.optim.Optimizer:
    """RecBole's choice of optimiser; unlike there, an unknown name is an error instead of Adam.

    Source: RecBole 1.2.1, ``Trainer._build_optimizer``.
    """
    name = str(config["learner"]).lower()
    if name not in _OPTIMISERS:
        raise UsageError(
            f"Unknown learner '{name}'.{near_miss(name, _OPTIMISERS)} Allowed: {', '.join(_OPTIMISERS)}."
        )
    decay = {} if name == "sparse_adam" else {"weight_decay": config["weight_decay"]}
    return _OPTIMISERS[name](model.parameters(), lr=config["learning_rate"], **decay)


class _Module(lightning.LightningModule):
    """RecBole's model with its own loss."""

    def __init__(self, model: Any, optimiser: torch.optim.Optimizer, bundle: Bundle) -> None:
        super().__init__()
        self.model = model
        self.made = optimiser
        self.clip = bundle.config["clip_grad_norm"]
        self.name = bundle.config["model"]
        self.place = bundle.config["device"]
        self.parts: tuple[float, ...] = ()

    def on_train_epoch_start(self) -> None:
        self.parts = ()
        # As RecBole at each epoch: some models (SGL) make their augmented graphs here.
        self.model.train()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        losses = self._losses(batch)
        several = losses if isinstance(losses, tuple) else (losses,)
        values = tuple(part.item() for part in several)
        if not all(map(math.isfinite, values)):
            raise RecunlearnError(
                f"The training loss of {self.name} is no longer a number. "
                "Lower learning_rate, or set clip_grad_norm."
            )
        self.parts = tuple(a + b for a, b in zip(self.parts, values, strict=True)) if self.parts else values
        loss: Any = sum(losses) if isinstance(losses, tuple) else losses
        return loss  # type: ignore[no-any-return]

    def _losses(self, batch: Any) -> Any:
        try:
            with quiet():
                return self.model.calculate_loss(batch)
        except (ValueError, RuntimeError, IndexError, KeyError, ZeroDivisionError) as error:
            raise RecunlearnError(
                f"RecBole's loss of {self.name} fails on this data with these parameters "
                f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'})."
            ) from error

    @property
    def epoch_loss(self) -> float:
        """Sum of the losses of this epoch's batches so far."""
        return sum(self.parts)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.made

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        if self.clip:
            clip_grad_norm_(self.model.parameters(), **self.clip)

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        return batch.to(self.place)


class _Watch(lightning.Callback):
    """After each epoch: evaluate, keep the best weights, write the journal, stop early."""

    def __init__(self, bundle: Bundle, journal: Journal, patience: int | None) -> None:
        self.bundle, self.journal, self.patience = bundle, journal, patience
        self.step = max(1, int(bundle.config["eval_step"] or 1))
        self.interrupted = False

    def is_over(self) -> bool:
        """Tell whether patience is used up."""
        return self.patience is not None and self.journal.worse >= self.patience

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        journal = self.journal
        pl_module.model.eval()
        due = self.patience is not None and (journal.epoch + 1) % self.step == 0
        metrics = evaluate(self.bundle, pl_module.model, "valid") if due else {}
        journal.record(pl_module.epoch_loss, metrics, metrics.get(main_metric(self.bundle)))
        trainer.should_stop = trainer.should_stop or self.is_over()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.interrupted = isinstance(exception, KeyboardInterrupt)


def _run(module: _Module, loader: Any, bundle: Bundle, epochs: int, callbacks: list[Any]) -> None:
    device = bundle.config["device"]
    handler = signal.getsignal(signal.SIGINT)
    with silent_lightning():
        trainer = lightning.Trainer(
            accelerator="cpu" if device.type == "cpu" else "gpu",
            devices=1 if device.type == "cpu" else [device.index or 0],
            max_epochs=epochs,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            callbacks=callbacks,
        )
        try:
            trainer.fit(module, train_dataloaders=loader)
        except SystemExit:
            # Lightning turns Ctrl-C into exit(1) and leaves the signal ignored.
            if not callbacks[0].interrupted:
                raise
            signal.signal(signal.SIGINT, handler)
            raise KeyboardInterrupt from None
